"""Memory of the adversarial (simulated) device, with call counters and injected failures."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBlock, HostBlock, StreamRef
from aiostream_data.device.host import bytes_at, bytes_of
from aiostream_data.errors import DeviceError, DeviceMemoryError
from aiostream_data.testing.address_model import AddressSpace, Chunk

OUT_OF_MEMORY = 2
"""CUDA status that causes a ``DeviceMemoryError``. Any other CUDA status causes a ``DeviceError``."""


class AdversarialMemory:
    """Memory allocation part of :class:`~.adversarial.AdversarialBackend`, without streams.

    Attributes:
        current: The consumer's stream; :meth:`consumer_block` allocates from the memory pool of this stream.
    """

    current: StreamRef

    def __init__(
        self, fail_at_call: int | None, fail_calls: int | None, fail_status: int, capacity_nbytes: int
    ) -> None:
        self._lock = threading.RLock()
        self._space = AddressSpace()
        self._pool: defaultdict[tuple[int, int], list[Chunk]] = defaultdict(list)
        self._fail_at_call = fail_at_call
        self._fail_calls = fail_calls
        self._fail_status = fail_status
        self._room_nbytes = capacity_nbytes
        self.violations: list[str] = []
        self.calls = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.blocks_made = 0
        self.host_nbytes = 0

    def host_block(self, nbytes: int) -> HostBlock:
        with self._lock:
            self._called("host_block")
            self.blocks_made += 1
            self.host_nbytes += nbytes
            return HostBlock(self._space.own(self._space.allocate(nbytes), self._host_freed))

    def _host_freed(self, chunk: Chunk) -> None:
        with self._lock:
            self._space.forget(chunk)
            self._space.poison(chunk)
            self.host_nbytes -= chunk.bytes.nbytes

    def adopt_shared(self, memory: NDArray[np.uint8]) -> HostBlock:
        with self._lock:
            self._called("adopt_shared")
            self._space.add(Chunk(memory, ours=False))
            return HostBlock(memory)

    def disown_shared(self, block: HostBlock) -> None:
        with self._lock:
            chunk = self._space.at(block.bytes)
            if chunk is None:
                self.violations.append("memory was disowned that is not adopted")
            else:
                self._space.forget(chunk)

    def device_block(self, nbytes: int) -> DeviceBlock:
        with self._lock:
            self._called("device_block")
            if nbytes > self._room_nbytes:
                raise DeviceMemoryError(f"adversarial: {nbytes} bytes asked for, {self._room_nbytes} left")
            self.blocks_made += 1
            self._room_nbytes -= nbytes
            return DeviceBlock(nbytes, self._space.own(self._space.allocate(nbytes), self._device_freed))

    def _device_freed(self, chunk: Chunk) -> None:
        with self._lock:
            self._space.forget(chunk)
            self._space.poison(chunk)
            self._room_nbytes += chunk.bytes.nbytes

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        """Allocate from the memory pool of the current stream; a reused block keeps its old content."""
        with self._lock:
            self._called("consumer_block")
            freed = self._pool[self.current.ptr, nbytes]
            chunk = freed.pop() if freed else self._space.allocate(nbytes)
            return DeviceBlock(nbytes, self._space.own(chunk, partial(self._consumer_freed, self.current.ptr)))

    def _consumer_freed(self, stream: int, chunk: Chunk) -> None:
        with self._lock:
            self._space.forget(chunk)
            chunk.live = True  # reuse is stream-ordered: earlier work may still use it
            self._pool[stream, chunk.bytes.nbytes].append(chunk)

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, buffer=block.memory, offset=offset)

    def address(self, block: DeviceBlock) -> int:
        return int(block.memory.ctypes.data)

    def block_at(self, address: int, nbytes: int, owner: object) -> DeviceBlock:
        return DeviceBlock(nbytes, bytes_at(address, nbytes, owner))

    def block_of(self, array: NDArray[Any]) -> DeviceBlock:
        memory = bytes_of(array)
        return DeviceBlock(memory.nbytes, memory)

    def dlpack_device(self, array: NDArray[Any]) -> tuple[int, int]:
        kind, number = array.__dlpack_device__()
        return int(kind), int(number)

    def dlpack(self, array: NDArray[Any], **asked: Any) -> Any:
        return array.__dlpack__(stream=None, **asked)

    def _called(self, name: str) -> None:
        number, self.calls = self.calls, self.calls + 1
        self.counts[name, threading.current_thread().name] += 1
        if self._fail_at_call is None or number < self._fail_at_call:
            return
        if self._fail_calls is None or number < self._fail_at_call + self._fail_calls:
            message = f"adversarial: call {number}, {name}, fails with CUDA status {self._fail_status}"
            if self._fail_status == OUT_OF_MEMORY:
                raise DeviceMemoryError(message)
            raise DeviceError(message, status=self._fail_status)
