"""CUDA devices through CuPy: the only file that imports it, and only when a GPU is asked for.

Uses runtime calls alone (memory, streams, events, copies); no kernel is compiled, so NVRTC is not
needed. Rules kept here, each after a failure seen in the wild:

* Blocks are raw ``PinnedMemory`` and ``Memory``, outside of CuPy's pools, which round up and hand out
  memory again while copies are still running.
* The current stream is never relied upon: every copy, mark and wait names its stream. The current
  *device* matters for new events and for stream 0, so it is set around those calls.
* Events block instead of spinning, carry no timing, and are recorded anew instead of made anew.
* No callback from CUDA into Python (deadlocks with the GIL), no ``Event.done`` (hides errors).

Verified without a GPU: the ways of failing, and which CuPy calls are made. **Unverified until run on
a GPU**: that the calls do what is written here, waiting on the legacy stream by its handle, and how
long anything takes. ``tests/gpu`` holds the checks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from aiostream_data.device.backend import DeviceArray, DeviceBlock, HostBlock, Mark, StreamRef
from aiostream_data.errors import DeviceError, DeviceMemoryError, DeviceUnavailableError, MissingExtraError

# CuPy exposes these as numbers only.
_SUCCESS = 0
_OUT_OF_MEMORY = 2
_INSUFFICIENT_DRIVER = 35
_NO_DEVICE = 100
_NOT_READY = 600


def device_count(device: str) -> int:
    """Return how many GPUs CUDA shows to this process. Initialises CUDA.

    Args:
        device: What the user asked for, for messages.

    Raises:
        MissingExtraError: CuPy is not installed.
        DeviceUnavailableError: There is no usable driver.
    """
    runtime = _import_cupy(device).cuda.runtime
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        if error.status == _NO_DEVICE:
            return 0
        if error.status == _INSUFFICIENT_DRIVER:
            why = "there is no NVIDIA driver, or it is too old for this CuPy"
        else:
            why = f"the NVIDIA driver does not start ({error})"
        raise DeviceUnavailableError(f"device {device!r} cannot be used: {why} (CUDA status {error.status})") from error


def open_cuda(index: int | None) -> CupyBackend:
    """Open GPU ``index``, or CUDA's current device. Makes its context: up to hundreds of milliseconds.

    Raises:
        MissingExtraError: CuPy is not installed.
        DeviceUnavailableError: There is no usable driver, or no such GPU.
    """
    asked = "cuda" if index is None else f"cuda:{index}"
    count = device_count(asked)
    if count == 0:
        raise DeviceUnavailableError(f"device {asked!r} cannot be used: the NVIDIA driver shows no GPU to this process")
    if index is not None and index >= count:
        raise DeviceUnavailableError(f"device {asked!r} cannot be used: this process sees {count} GPU(s), from cuda:0")
    cupy = _import_cupy(asked)
    return CupyBackend(cupy, int(cupy.cuda.runtime.getDevice()) if index is None else index)


def _import_cupy(device: str) -> Any:
    try:
        import cupy
        import cupy.cuda
    except ImportError as error:
        raise MissingExtraError(
            f"device {device!r} needs CuPy ({error}): pip install 'aiostream-data[cupy13]' for CUDA 13, "
            "or 'aiostream-data[cupy12]' for CUDA 12"
        ) from error
    return cupy


class CupyBackend:
    """Implements :class:`~aiostream_data.device.backend.DeviceBackend` on one GPU. Thread-safe."""

    def __init__(self, cupy: Any, index: int) -> None:
        self._cupy = cupy
        self._cuda = cupy.cuda
        self._runtime = cupy.cuda.runtime
        self._index = index
        self._spare_events: deque[Any] = deque()  # append and pop are atomic
        with self._calling("make a context"):
            self._runtime.free(0)  # makes the context now, and not under the first batch

    @property
    def device(self) -> str:
        return f"cuda:{self._index}"

    @property
    def keeps_objects(self) -> bool:
        return False

    def host_block(self, nbytes: int) -> HostBlock:
        with self._calling(f"page-lock {nbytes} bytes of host memory"):
            memory = self._cuda.PinnedMemory(nbytes, self._runtime.hostAllocPortable)
        pointer = self._cuda.PinnedMemoryPointer(memory, 0)
        return HostBlock(np.frombuffer(pointer, np.uint8, nbytes))

    def device_block(self, nbytes: int) -> DeviceBlock:
        try:
            return self._raw_block(nbytes)
        except DeviceMemoryError:
            # CuPy keeps freed memory for itself; give it one chance to let go.
            with self._calling("free CuPy's memory pool"):
                self._cupy.get_default_memory_pool().free_all_blocks()
            return self._raw_block(nbytes)

    def _raw_block(self, nbytes: int) -> DeviceBlock:
        with self._calling(f"allocate {nbytes} bytes for a device slot"):
            return DeviceBlock(nbytes, self._cuda.MemoryPointer(self._cuda.Memory(nbytes), 0))

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        # From the consumer's own allocator: the pool arena of the thread's current stream, which is
        # the stream that d2d is then given.
        with self._calling(f"allocate {nbytes} bytes for a batch"):
            return DeviceBlock(nbytes, self._cuda.alloc(nbytes))

    def stream(self) -> StreamRef:
        with self._calling("make a stream"):
            stream = self._cuda.Stream(non_blocking=True)  # else it would wait for the legacy stream
        return StreamRef(int(stream.ptr), stream)

    def current_stream(self) -> StreamRef:
        with self._calling("ask for the current stream"):
            stream = self._cuda.get_current_stream()
        return StreamRef(int(stream.ptr), stream)

    def h2d(self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef) -> None:
        self._copy(dst, src.bytes.ctypes.data, nbytes, self._runtime.memcpyHostToDevice, stream)

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef) -> None:
        self._copy(dst, int(src.memory.ptr), nbytes, self._runtime.memcpyDeviceToDevice, stream)

    def _copy(self, dst: DeviceBlock, source: int, nbytes: int, kind: int, stream: StreamRef) -> None:
        with self._calling(f"copy {nbytes} bytes"):
            self._runtime.memcpyAsync(int(dst.memory.ptr), source, nbytes, kind, stream.ptr)

    def mark(self, stream: StreamRef) -> Mark:
        with self._calling("record an event"):
            try:
                event = self._spare_events.pop()
            except IndexError:
                event = self._cuda.Event(block=True, disable_timing=True)
            self._runtime.eventRecord(event.ptr, stream.ptr)
        return Mark(event)

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        with self._calling("order a stream after an event"):
            self._runtime.streamWaitEvent(stream.ptr, mark.event.ptr)

    def join(self, mark: Mark) -> None:
        with self._calling("wait for an event"):
            mark.event.synchronize()

    def finished(self, mark: Mark) -> bool:
        with self._calling("query an event"):
            status = int(self._runtime.eventQuery(mark.event.ptr))
        if status not in (_SUCCESS, _NOT_READY):
            raise DeviceError(f"{self.device}: an event reports CUDA status {status}")
        return status == _SUCCESS

    def retire(self, mark: Mark) -> None:
        # Streams already told to wait keep what they were told: recording anew does not change it.
        self._spare_events.append(mark.event)

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        with self._calling("make an array"):
            return self._cupy.ndarray(shape, dtype, memptr=block.memory + offset)

    def close(self) -> None:
        self._spare_events.clear()

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        """Run a block on this device, and tell its failures as ours. Never holds an ``await``."""
        try:
            with self._cuda.Device(self._index):
                yield
        except self._runtime.CUDARuntimeError as error:
            kind = DeviceMemoryError if error.status == _OUT_OF_MEMORY else DeviceError
            raise kind(f"{self.device}: could not {what}: {error}") from error
        except self._cuda.memory.OutOfMemoryError as error:
            raise DeviceMemoryError(f"{self.device}: could not {what}: {error}") from error
