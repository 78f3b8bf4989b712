"""Protocol (interface) between the device stage and a device: memory, streams, copies and marks.

The caller *enqueues* work on a stream (a queue of device operations). The device runs the work of one stream in order.
The device does not order the work of different streams. A **mark** is a recorded point in a stream, like a CUDA event.
``order_after`` makes another *stream* wait for a mark, and returns immediately. ``join`` blocks the calling *thread*
until the device has passed the mark.

Three classes implement the protocol: :class:`~aiostream_data.device.host.HostBackend` (NumPy, runs work immediately),
``CupyBackend`` in ``cuda.py``, and ``testing.adversarial.AdversarialBackend``. For tests, the adversarial backend
delays and interleaves enqueued work as much as the protocol allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from aiostream_data.device.batch_layout import CastPlan

NativeArray: TypeAlias = Any
"""Array type of a device: ``numpy.ndarray`` on ``cpu``, ``cupy.ndarray`` on ``cuda``.

The type alias is Any because CuPy may not be installed.
"""

ALIGNMENT = 256
"""Alignment in bytes of every memory block and of every array in a block. cudaMalloc uses the same alignment."""

NO_STREAM = -1
"""Stream number that a DLPack importer passes to request no stream ordering."""


@dataclass(frozen=True, slots=True, eq=False)
class HostBlock:
    """Host memory that the device can copy from directly (page-locked on a GPU).

    Attributes:
        bytes: Memory of the block, as a uint8 array of shape (nbytes,) that starts on an :data:`ALIGNMENT` boundary.
            The array and its views keep the memory alive.
        pinned: True if the memory is page-locked. Copies from memory that is not page-locked are correct but slower,
            and partly block the enqueueing thread.
    """

    bytes: NDArray[np.uint8]
    pinned: bool = True

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBlock:
    """Block of device memory that starts on an :data:`ALIGNMENT` boundary.

    Attributes:
        nbytes: Size of the block in bytes.
        memory: The backend's memory object. Deleting the last reference to this object frees the memory.
    """

    nbytes: int
    memory: Any


@dataclass(frozen=True, slots=True)
class StreamRef:
    """Reference to a device stream.

    Attributes:
        ptr: Handle of the stream, unique within a device.
        owner: Object that keeps the stream alive; None if the stream is kept alive elsewhere.
    """

    ptr: int
    owner: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A recorded point in a stream of device work. Only a :class:`DeviceBackend` creates marks.

    A mark has one owner. When no thread or stream will wait for the mark any more, the owner passes the mark to
    :meth:`DeviceBackend.retire`.

    Attributes:
        event: Event object of the backend.
        timed: True if :meth:`DeviceBackend.timed_mark` recorded the mark.
    """

    event: Any
    timed: bool = False


class DeviceBackend(Protocol):
    """Interface of one device. Any thread may call the methods. Coroutines on an event loop must not call these
    methods.

    Every method raises :class:`~aiostream_data.errors.DeviceError` when the device has failed.
    """

    @property
    def device(self) -> str:
        """Name of the device: ``cpu`` or ``cuda:N``."""

    @property
    def keeps_objects(self) -> bool:
        """True if a batch may contain non-numeric leaves. The batch's memory slot does not store such leaves."""

    def host_block(self, nbytes: int) -> HostBlock:
        """Allocate uninitialized host memory for copies to the device.

        Raises:
            PinningError: The host memory cannot be allocated or page-locked.
        """

    def adopt_shared(self, memory: NDArray[np.uint8]) -> HostBlock:
        """Page-lock shared memory that another process also writes, so that the device can copy from it directly.

        The memory stays page-locked until :meth:`disown_shared` is called, and must stay mapped until then. The caller
        must call :meth:`disown_shared` before :meth:`close`, because page-locked memory cannot be unlocked after
        :meth:`close`.

        Args:
            memory: All bytes of one memory mapping. For an empty array, the method page-locks nothing.

        Raises:
            PinningError: The system refused to page-lock the memory.
        """

    def disown_shared(self, block: HostBlock) -> None:
        """Undo :meth:`adopt_shared`. All enqueued copies that read the block must have finished before this call."""

    def device_block(self, nbytes: int) -> DeviceBlock:
        """Allocate uninitialized device memory directly, without a memory pool.

        Raises:
            DeviceMemoryError: The device does not have enough free memory.
        """

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        """Allocate device memory for the consumer. The memory is usable on the calling thread's current stream.

        Raises:
            DeviceMemoryError: The device does not have enough free memory.
        """

    def stream(self) -> StreamRef:
        """Create a stream whose work is not ordered after any other stream.

        :meth:`close` also closes the stream.
        """

    def current_stream(self) -> StreamRef:
        """Return the calling thread's current stream."""

    def same_in_all_threads(self, stream: StreamRef) -> bool:
        """Return True if the handle of ``stream`` refers to the same stream in every thread."""

    def capturing(self, stream: StreamRef) -> bool:
        """Return True if ``stream`` records enqueued work in a CUDA graph instead of running the work."""

    def h2d(
        self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef, at: int = 0, offset: int = 0
    ) -> None:
        """Enqueue a copy of ``nbytes`` bytes of host memory to the device.

        The copy reads ``src`` from byte ``offset`` and writes ``dst`` from byte ``at``. Both memory blocks must exist
        until the copy has finished.
        """

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef, offset: int = 0) -> None:
        """Enqueue a copy of ``nbytes`` bytes of ``src``, from byte ``offset``, to ``dst``.

        Both memory blocks must exist until the copy has finished.
        """

    def prepare_cast(self) -> None:
        """Compile the kernels that :meth:`cast` needs.

        Compiling can take several seconds, so call this method before the first cast.

        Raises:
            DeviceUnavailableError: The cast kernels cannot be compiled or loaded.
        """

    def cast(self, dst: DeviceBlock, src: DeviceBlock, plan: CastPlan, stream: StreamRef) -> None:
        """Enqueue the cast (conversion) of a batch of images from ``src`` to ``dst``.

        Both memory blocks must exist until the cast has finished.
        """

    def mark(self, stream: StreamRef) -> Mark:
        """Record a mark after all work that was enqueued on ``stream`` so far."""

    def timed_mark(self, stream: StreamRef) -> Mark:
        """Record a mark that stores the time at which the device passes the mark.

        This method is slower than :meth:`mark`, so use it for profiling only.
        """

    def elapsed_s(self, first: Mark, then: Mark) -> float:
        """Return the time between two timed marks, in seconds. The device must have passed both marks."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        """Make all work enqueued on ``stream`` after this call wait for ``mark``.

        This method does not block the calling thread.
        """

    def join(self, mark: Mark) -> None:
        """Block the calling thread, with the GIL released, until the device has passed ``mark``."""

    def finished(self, mark: Mark) -> bool:
        """Return True if the device has passed ``mark``.

        This method may hold the GIL, so use it only for closing and in tests.
        """

    def retire(self, mark: Mark) -> None:
        """Return a mark to the backend for reuse. After this call, no thread or stream may wait for the mark."""

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NativeArray:
        """Return a C-ordered array of the memory in ``block`` from byte ``offset``. The array keeps the block alive."""

    def address(self, block: DeviceBlock) -> int:
        """Return the address of the first byte of ``block``."""

    def block_at(self, address: int, nbytes: int, owner: object) -> DeviceBlock:
        """Wrap memory owned by ``owner`` as a block. The block and every view of the block keep ``owner`` alive."""

    def block_of(self, array: NativeArray) -> DeviceBlock:
        """Return the memory of a C-ordered NumPy or CuPy array as a block. The block keeps the array alive.

        Raises:
            TypeError: The array is not a writable NumPy array on ``cpu``, or not a CuPy array on this ``cuda`` device.
        """

    def dlpack_device(self, array: NativeArray) -> tuple[int, int]:
        """Return the DLPack device type and device index of a NumPy or CuPy array of this device."""

    def dlpack(self, array: NativeArray, **asked: Any) -> Any:
        """Return a DLPack capsule of a NumPy or CuPy array of this device. The method does not order any streams.

        Args:
            asked: Additional keyword arguments of the DLPack protocol. The method passes these arguments to the array's
                ``__dlpack__``.
        """

    def close(self) -> None:
        """Close all streams and delete all marks. Idempotent.

        Memory blocks exist until the last reference to the block is deleted.
        """
