"""The ``cpu`` device, which runs every operation of the device protocol immediately with NumPy.

With the ``cpu`` device, pipelines that have a device stage can run and be tested without a GPU. Work enqueued on the
``cpu`` device has finished when the call returns, so no operation ever waits.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import ALIGNMENT, DeviceBlock, HostBlock, Mark, NativeArray, StreamRef
from aiostream_data.device.batch_layout import CastPlan
from aiostream_data.device.cast_on_host import cast_batch
from aiostream_data.errors import ArgumentTypeError, DeviceMemoryError

_THE_STREAM = StreamRef(0)
_THE_MARK = Mark("passed")


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Return ``nbytes`` uninitialized bytes that start on an :data:`~.backend.ALIGNMENT` boundary.

    Raises:
        DeviceMemoryError: The system cannot allocate the memory.
    """
    try:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise DeviceMemoryError(f"cpu: could not allocate {nbytes} bytes for a slot: {error}", need=nbytes) from error
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + nbytes]


class _ForeignMemory:
    """NumPy array interface for memory that another object owns.

    An array created from this interface keeps the owner of the memory alive.
    """

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def bytes_at(address: int, nbytes: int, owner: object) -> NDArray[np.uint8]:
    """Return an array that refers to ``nbytes`` bytes of host memory at ``address``.

    The array keeps ``owner`` alive.
    """
    return np.asarray(_ForeignMemory(address, nbytes, owner))


def bytes_of(array: Any) -> NDArray[np.uint8]:
    """Return a uint8 array that shares the memory of a C-ordered array. The result keeps ``array`` alive.

    Raises:
        TypeError: ``array`` is not a writable NumPy array.
    """
    if not isinstance(array, np.ndarray) or not array.flags.writeable:
        raise ArgumentTypeError("expected a writable NumPy array")
    return bytes_at(array.ctypes.data, array.nbytes, array)


class HostBackend:
    """:class:`~aiostream_data.device.backend.DeviceBackend` over host memory. Thread-safe."""

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def keeps_objects(self) -> bool:
        return True

    def host_block(self, nbytes: int) -> HostBlock:
        return HostBlock(aligned_bytes(nbytes), pinned=False)

    def adopt_shared(self, memory: NDArray[np.uint8]) -> HostBlock:
        return HostBlock(memory, pinned=False)

    def disown_shared(self, block: HostBlock) -> None:
        """Do nothing: host memory is not page-locked."""

    def device_block(self, nbytes: int) -> DeviceBlock:
        return DeviceBlock(nbytes, aligned_bytes(nbytes))

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        return self.device_block(nbytes)

    def stream(self) -> StreamRef:
        return _THE_STREAM

    def current_stream(self) -> StreamRef:
        return _THE_STREAM

    def same_in_all_threads(self, stream: StreamRef) -> bool:
        return True

    def capturing(self, stream: StreamRef) -> bool:
        return False

    def h2d(
        self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef, at: int = 0, offset: int = 0
    ) -> None:
        np.copyto(dst.memory[at : at + nbytes], src.bytes[offset : offset + nbytes])

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef, offset: int = 0) -> None:
        np.copyto(dst.memory[:nbytes], src.memory[offset : offset + nbytes])

    def prepare_cast(self) -> None:
        """Do nothing: NumPy needs no preparation for a cast."""

    def cast(self, dst: DeviceBlock, src: DeviceBlock, plan: CastPlan, stream: StreamRef) -> None:
        cast_batch(dst.memory, src.memory, plan)

    def mark(self, stream: StreamRef) -> Mark:
        return _THE_MARK

    def timed_mark(self, stream: StreamRef) -> Mark:
        return Mark(perf_counter(), timed=True)

    def elapsed_s(self, first: Mark, then: Mark) -> float:
        return float(then.event - first.event)

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        """Return immediately, because enqueued work on the host has already run."""

    def join(self, mark: Mark) -> None:
        """Return immediately, because enqueued work on the host has already run."""

    def finished(self, mark: Mark) -> bool:
        return True

    def retire(self, mark: Mark) -> None:
        """Do nothing, because marks on the host hold no resources."""

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, buffer=block.memory, offset=offset)

    def address(self, block: DeviceBlock) -> int:
        return int(block.memory.ctypes.data)

    def block_at(self, address: int, nbytes: int, owner: object) -> DeviceBlock:
        return DeviceBlock(nbytes, bytes_at(address, nbytes, owner))

    def block_of(self, array: NativeArray) -> DeviceBlock:
        memory = bytes_of(array)
        return DeviceBlock(memory.nbytes, memory)

    def dlpack_device(self, array: NativeArray) -> tuple[int, int]:
        kind, number = array.__dlpack_device__()
        return int(kind), int(number)

    def dlpack(self, array: NativeArray, **asked: Any) -> Any:
        return array.__dlpack__(stream=None, **asked)

    def close(self) -> None:
        """Do nothing, because Python frees host memory automatically."""
