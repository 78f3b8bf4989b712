"""CUDA devices through CuPy. Only this file imports CuPy, and only when a GPU is requested.

The backend calls only CUDA's runtime functions for memory, streams, events and copies. Only ``ImageCast`` compiles a
kernel, so no other feature needs NVRTC, CUDA's run-time compiler. The CUDA backend follows four rules. Each rule
prevents a failure that occurred in practice:

* Memory blocks are raw ``PinnedMemory`` and ``Memory`` objects of CuPy. CuPy's memory pools are not used, because they
  round sizes up and reuse memory while copies still run.
* Every copy, event and wait names its CUDA stream and never relies on the current stream. Creating events and using
  stream 0 depend on the current *device*. The module :mod:`.cuda_context` sets the current device around all calls.
* CUDA events are reused. Waiting for an event blocks the thread instead of spinning, and only profiles record timings.
* The backend passes no Python callbacks to CUDA, because a callback that waits for the GIL can cause a deadlock. The
  backend does not use CuPy's ``Event.done``, because ``Event.done`` hides errors.

Tests without a GPU check the error handling and which CuPy calls the backend makes. **Only a run on a GPU** can check
the effects of CuPy calls, waiting on the legacy stream, and all timings. ``tests/gpu`` holds the checks.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import NO_STREAM, DeviceBlock, HostBlock, Mark, NativeArray, StreamRef
from aiostream_data.device.batch_layout import CastPlan
from aiostream_data.device.cuda_context import CudaContext, Freed
from aiostream_data.device.cuda_events import record_event
from aiostream_data.device.cuda_status import NOT_READY, OUT_OF_MEMORY, SUCCESS, of_capture, sentence_of, sticky
from aiostream_data.device.image_cast_kernel import Launch, compile_kernels, launch_of
from aiostream_data.errors import (
    AiostreamError,
    ArgumentTypeError,
    DeviceError,
    DeviceMemoryError,
    DeviceUnavailableError,
    GraphCaptureError,
    MissingExtraError,
    PinningError,
)


def import_cupy(device: str) -> Any:
    """Import CuPy and return the module.

    Args:
        device: Device name that the user requested, for error messages.

    Raises:
        MissingExtraError: CuPy is not installed.
        DeviceUnavailableError: CuPy is installed but cannot be imported.
    """
    try:
        import cupy
        import cupy.cuda
    except ModuleNotFoundError as error:
        if error.name not in ("cupy", "cupy.cuda"):
            raise _broken(device, error) from error
        raise MissingExtraError(
            f"device {device!r} needs CuPy ({error}): pip install 'aiostream-data[cupy13]' for CUDA 13, "
            "or 'aiostream-data[cupy12]' for CUDA 12"
        ) from error
    except ImportError as error:
        raise _broken(device, error) from error
    return cupy


def _broken(device: str, error: ImportError) -> DeviceUnavailableError:
    return DeviceUnavailableError(
        f"device {device!r} cannot be used: CuPy is installed but cannot be imported: {error}"
    )


_PORTABLE = 1
"""``cudaHostRegisterPortable``: page-lock memory for all GPUs of the process.

CuPy defines no constant for this flag.
"""


ON_GPU = 2
"""Number that identifies CUDA memory in the DLPack protocol."""

PER_THREAD_STREAM = 2
"""Handle by which CUDA identifies the per-thread default stream."""


def _unregister_all(runtime: Any, context: CudaContext, registered: dict[int, NDArray[np.uint8]], pid: int) -> None:
    """Unlock the page-locked shared memory of a backend that was not closed, before the memory is unmapped."""
    if os.getpid() == pid:
        for address in registered:
            with suppress(*context.errors), context.current():  # a finalizer has no caller that could handle the error
                runtime.hostUnregister(address)


class CupyBackend:
    """CUDA implementation of :class:`~aiostream_data.device.backend.DeviceBackend` for one GPU. Thread-safe."""

    def __init__(self, cupy: Any, index: int) -> None:
        self._cupy = cupy
        self._cuda = cupy.cuda
        self._runtime = cupy.cuda.runtime
        self._index = index
        self._spare_events: tuple[deque[Any], deque[Any]] = deque(), deque()  # without timing, with timing
        self._kernels: dict[str, Any] = {}
        self._registered: dict[int, NDArray[np.uint8]] = {}
        with self._telling("create a context"):
            self._context = CudaContext(self._cuda, index)
        self._record = record_event(cupy)
        self._unregister = weakref.finalize(
            self, _unregister_all, self._runtime, self._context, self._registered, os.getpid()
        )
        self._unregister.atexit = False

    @property
    def device(self) -> str:
        return f"cuda:{self._index}"

    @property
    def keeps_objects(self) -> bool:
        return False

    def host_block(self, nbytes: int) -> HostBlock:
        with self._pinning(nbytes, "host memory"):
            memory = self._freed(self._cuda.PinnedMemory(nbytes, self._runtime.hostAllocPortable), nbytes)
        pointer = self._cuda.PinnedMemoryPointer(memory, 0)
        return HostBlock(np.frombuffer(pointer, np.uint8, nbytes))

    def adopt_shared(self, memory: NDArray[np.uint8]) -> HostBlock:
        address = memory.ctypes.data
        if memory.nbytes:  # CUDA refuses to register zero bytes
            with self._pinning(memory.nbytes, "shared memory"):
                self._runtime.hostRegister(address, memory.nbytes, _PORTABLE)
            self._registered[address] = memory
        return HostBlock(memory)

    def disown_shared(self, block: HostBlock) -> None:
        if block.nbytes:
            with self._calling(f"unlock {block.nbytes} bytes of shared memory"):
                self._runtime.hostUnregister(block.bytes.ctypes.data)
            del self._registered[block.bytes.ctypes.data]

    def device_block(self, nbytes: int) -> DeviceBlock:
        try:
            return self._raw_block(nbytes)
        except DeviceMemoryError:
            # CuPy's pool caches freed memory: release the cache and retry once.
            with self._calling("free CuPy's memory pool"):
                self._cupy.get_default_memory_pool().free_all_blocks()
            return self._raw_block(nbytes)

    def _raw_block(self, nbytes: int) -> DeviceBlock:
        with self._calling(f"allocate {nbytes} bytes for a device slot", nbytes):
            memory = self._freed(self._cuda.Memory(nbytes), nbytes)
            return self.block_at(memory.ptr, nbytes, memory)

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        # CuPy allocates from the pool arena of the thread's current stream, and d2d runs on the same stream.
        with self._calling(f"allocate {nbytes} bytes for a batch", nbytes):
            return DeviceBlock(nbytes, self._cuda.alloc(nbytes))

    def stream(self) -> StreamRef:
        with self._calling("create a stream"):
            stream = self._freed(self._cuda.Stream(non_blocking=True))  # a blocking stream waits for the legacy stream
        return StreamRef(stream.ptr, stream)

    def current_stream(self) -> StreamRef:
        with self._calling("read the current stream"):
            stream = self._cuda.get_current_stream()
        return StreamRef(int(stream.ptr), stream)

    def h2d(
        self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef, at: int = 0, offset: int = 0
    ) -> None:
        source = src.bytes.ctypes.data + offset
        self._copy(dst, source, nbytes, self._runtime.memcpyHostToDevice, stream, at)

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef, offset: int = 0) -> None:
        self._copy(dst, int(src.memory.ptr) + offset, nbytes, self._runtime.memcpyDeviceToDevice, stream)

    def _copy(self, dst: DeviceBlock, source: int, nbytes: int, kind: int, stream: StreamRef, at: int = 0) -> None:
        with self._calling(f"copy {nbytes} bytes"):
            self._runtime.memcpyAsync(int(dst.memory.ptr) + at, source, nbytes, kind, stream.ptr)

    def prepare_cast(self) -> None:
        try:
            with self._calling("load the kernels that cast images"):
                self._kernels = self._kernels or compile_kernels(self._cupy)
        except AiostreamError:
            raise
        except (RuntimeError, OSError, self._cuda.compiler.CompileException) as error:
            raise DeviceUnavailableError(
                f"{self.device}: ImageCast needs the compiler of CuPy, NVRTC: {error}. Install it (pip install "
                "'aiostream-data[cupy13]', or [cupy12] for CUDA 12), or omit transform= and cast in the framework"
            ) from error

    def cast(self, dst: DeviceBlock, src: DeviceBlock, plan: CastPlan, stream: StreamRef) -> None:
        if not self._kernels:
            self.prepare_cast()
        target, slot = int(dst.memory.ptr), int(src.memory.ptr)
        with self._calling("cast a batch of images"):
            for copy in plan.copies:
                kind = self._runtime.memcpyDeviceToDevice
                self._runtime.memcpyAsync(target + copy.target, slot + copy.source, copy.nbytes, kind, stream.ptr)
            for launch in (launch_of(cast, target, slot) for cast in plan.casts):
                if launch is not None:
                    self._launch(launch, stream)

    def _launch(self, launch: Launch, stream: StreamRef) -> None:
        # The stream is named explicitly. CuPy reads only the `ptr` attribute of a StreamRef.
        with self._telling(f"launch {launch.name}"):
            self._kernels[launch.name](launch.grid, launch.block, launch.arguments, stream=stream)

    def mark(self, stream: StreamRef) -> Mark:
        return self._mark(stream, timed=False)

    def timed_mark(self, stream: StreamRef) -> Mark:
        return self._mark(stream, timed=True)

    def _mark(self, stream: StreamRef, *, timed: bool) -> Mark:
        with self._calling("record an event"):
            try:
                event = self._spare_events[timed].pop()
            except IndexError:
                event = self._freed(self._cuda.Event(block=True, disable_timing=not timed))
            self._record(event.ptr, stream.ptr)
        return Mark(event, timed=timed)

    def elapsed_s(self, first: Mark, then: Mark) -> float:
        with self._calling("read the duration of a copy"):
            return float(self._runtime.eventElapsedTime(first.event.ptr, then.event.ptr)) / 1e3

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        with self._calling("order a stream after an event"):
            self._runtime.streamWaitEvent(stream.ptr, mark.event.ptr)

    def join(self, mark: Mark) -> None:
        with self._calling("wait for an event"):
            self._runtime.eventSynchronize(mark.event.ptr)

    def finished(self, mark: Mark) -> bool:
        with self._calling("query an event"):
            status = int(self._runtime.eventQuery(mark.event.ptr))
        if status not in (SUCCESS, NOT_READY):
            raise DeviceError(
                f"{self.device}: an event reports CUDA status {status}: {sentence_of(status)}", status=status
            )
        return status == SUCCESS

    def capturing(self, stream: StreamRef) -> bool:
        try:
            with self._calling("check whether a stream is being captured"):
                return bool(self._runtime.streamIsCapturing(stream.ptr))
        except GraphCaptureError:
            return True  # `stream` is the legacy stream, and a capturing stream depends on it
        except DeviceError:
            raise
        except RuntimeError:
            return True  # CuPy raises a plain RuntimeError for a capture that failed and has not ended

    def retire(self, mark: Mark) -> None:
        # Recording an event again does not affect streams that already wait for its earlier recording.
        self._spare_events[mark.timed].append(mark.event)

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NativeArray:
        with self._calling("create an array"):
            return self._cupy.ndarray(shape, dtype, memptr=block.memory + offset)

    def address(self, block: DeviceBlock) -> int:
        return int(block.memory.ptr)

    def block_at(self, address: int, nbytes: int, owner: object) -> DeviceBlock:
        with self._calling("wrap memory of another library"):
            memory = self._cuda.UnownedMemory(address, nbytes, owner, self._index)
            return DeviceBlock(nbytes, self._cuda.MemoryPointer(memory, 0))

    def block_of(self, array: NativeArray) -> DeviceBlock:
        if not isinstance(array, self._cupy.ndarray):
            raise ArgumentTypeError(f"expected a CuPy array on {self.device}")
        if array.device.id != self._index:
            raise ArgumentTypeError(f"the array is on cuda:{array.device.id}, the batch on {self.device}")
        return DeviceBlock(int(array.nbytes), array.data)

    def dlpack_device(self, array: NativeArray) -> tuple[int, int]:
        return ON_GPU, self._index  # CuPy 13 returns arbitrary numbers after a device failure

    def dlpack(self, array: NativeArray, **asked: Any) -> Any:
        # Without stream=NO_STREAM, CuPy orders the importer after the current device's current stream.
        with self._calling("export an array"):
            return array.__dlpack__(stream=NO_STREAM, **asked)

    def same_in_all_threads(self, stream: StreamRef) -> bool:
        return stream.ptr != PER_THREAD_STREAM

    def close(self) -> None:
        for spare in self._spare_events:
            spare.clear()
        self._unregister.detach()

    def _freed(self, owned: Any, nbytes: int = 0) -> Freed:
        return Freed(owned, self._context, nbytes)

    @contextmanager
    def _calling(self, what: str, nbytes: int | None = None) -> Iterator[None]:
        """Make this GPU current while a ``with`` block runs, and convert CUDA errors; see :meth:`_telling`."""
        with self._telling(what, nbytes), self._context.current():
            yield

    @contextmanager
    def _telling(self, what: str, nbytes: int | None = None) -> Iterator[None]:
        """Convert errors that CuPy raises in a ``with`` block to errors of this package.

        The ``with`` block must not contain an ``await``.

        Args:
            what: Name of the attempted operation, for error messages.
            nbytes: Bytes of device memory that the operation allocates; None if the operation allocates no memory.
        """
        try:
            yield
        except (self._runtime.CUDARuntimeError, self._cuda.driver.CUDADriverError) as error:
            raise self._told(what, nbytes, error, error.status) from error
        except self._cuda.memory.OutOfMemoryError as error:
            raise self._told(what, nbytes, error, OUT_OF_MEMORY) from error

    @contextmanager
    def _pinning(self, nbytes: int, what: str) -> Iterator[None]:
        """Run a code block that page-locks memory.

        Raise DeviceError if the device failed, and PinningError if the system refused to page-lock the memory.
        """
        try:
            with self._calling(f"page-lock {nbytes} bytes of {what}"):
                yield
        except (DeviceMemoryError, DeviceError) as error:
            if isinstance(error, DeviceError) and sticky(error.status):
                raise
            raise PinningError(str(error), need=nbytes) from error

    def _told(self, what: str, nbytes: int | None, error: Exception, status: int) -> AiostreamError:
        message = f"{self.device}: could not {what}: {error}: {sentence_of(status)}"
        if status == OUT_OF_MEMORY:
            return DeviceMemoryError(message, need=nbytes, free=None if nbytes is None else self._free_nbytes())
        if of_capture(status):
            return GraphCaptureError(message)
        return DeviceError(message, status=status)

    def _free_nbytes(self) -> int | None:
        """Return the free memory of the device in bytes. Memory that other programs use is not free.

        Call this function only after a failure, because it holds the GIL.
        """
        try:
            with self._context.current():
                free, _ = self._runtime.memGetInfo()
        except self._context.errors:
            return None
        return int(free)
