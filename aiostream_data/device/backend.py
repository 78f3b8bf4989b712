"""The protocol between the device stage and a device: memory, streams, copies and marks.

The caller *enqueues* work on a stream. The device runs the work of one stream in order; it does not order two streams.
A **mark** is a recorded point in a stream. ``order_after`` makes another *stream* wait for a mark and returns at once.
``join`` blocks the calling *thread* until the device has passed the mark.

Three classes implement the protocol: :class:`~aiostream_data.device.host.HostBackend` (NumPy, runs at once),
``CupyBackend`` in ``cuda.py``, and ``testing.adversarial.AdversarialBackend``. The adversarial backend runs enqueued
work as late and as interleaved as the protocol allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from aiostream_data.device.batch_layout import CastPlan

NativeArray: TypeAlias = Any
"""``numpy.ndarray`` on ``cpu``, ``cupy.ndarray`` on ``cuda``. The alias is Any because CuPy may not be installed."""

ALIGNMENT = 256
"""Alignment in bytes of every block and of every array in a block, equal to the alignment of cudaMalloc."""

NO_STREAM = -1
"""DLPack's stream number for an importer that asks for no stream ordering."""


@dataclass(frozen=True, slots=True, eq=False)
class HostBlock:
    """Host memory that the device can copy from directly (page-locked on a GPU).

    Attributes:
        bytes: uint8, shape (nbytes,), starting on an :data:`ALIGNMENT` boundary. The array and its views keep the block
            alive.
        pinned: True if the memory is page-locked. Copies from other memory are correct but slower, and partly block the
            enqueueing thread.
    """

    bytes: NDArray[np.uint8]
    pinned: bool = True

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBlock:
    """Device memory, starting on an :data:`ALIGNMENT` boundary.

    Attributes:
        nbytes: Size of the block in bytes.
        memory: The backend's memory object. Dropping its last reference frees the memory.
    """

    nbytes: int
    memory: Any


@dataclass(frozen=True, slots=True)
class StreamRef:
    """Reference to a device stream.

    Attributes:
        ptr: Handle of the stream, unique within a device.
        owner: Object that keeps the stream alive. None if another object keeps the stream alive.
    """

    ptr: int
    owner: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A recorded point in a stream. Only a :class:`DeviceBackend` creates marks, so every mark is recorded.

    A mark has one owner. The owner passes it to :meth:`DeviceBackend.retire` when no thread or stream will wait for it.

    Attributes:
        event: The backend's event object.
        timed: True if :meth:`DeviceBackend.timed_mark` recorded the mark.
    """

    event: Any
    timed: bool = False


class DeviceBackend(Protocol):
    """Interface of one device. Any thread may call the methods, but coroutines on an event loop must not.

    Every method raises :class:`~aiostream_data.errors.DeviceError` when the device has failed.
    """

    @property
    def device(self) -> str:
        """Name of the device: ``cpu`` or ``cuda:N``."""

    @property
    def keeps_objects(self) -> bool:
        """True if a batch may contain non-numeric leaves, which then stay outside the slot."""

    def host_block(self, nbytes: int) -> HostBlock:
        """Allocate uninitialized host memory for copies to the device.

        Raises:
            PinningError: The memory cannot be allocated or page-locked.
        """

    def adopt_shared(self, memory: NDArray[np.uint8]) -> HostBlock:
        """Page-lock memory that another process also writes, so that the device copies from it directly.

        The memory stays page-locked until :meth:`disown_shared`, and must stay mapped until then. The caller must
        disown it before :meth:`close`, because it can never be unlocked afterwards.

        Args:
            memory: All bytes of one mapping. An empty array is accepted and page-locks nothing.

        Raises:
            PinningError: The system refused to page-lock the memory.
        """

    def disown_shared(self, block: HostBlock) -> None:
        """Undo :meth:`adopt_shared`. All enqueued copies that read the block must have finished."""

    def device_block(self, nbytes: int) -> DeviceBlock:
        """Allocate uninitialized device memory outside every memory pool.

        Raises:
            DeviceMemoryError: The device has not enough free memory.
        """

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        """Allocate device memory for the consumer, usable on the calling thread's current stream.

        Raises:
            DeviceMemoryError: The device has not enough free memory.
        """

    def stream(self) -> StreamRef:
        """Create a stream that is not ordered after any other stream. Closing the backend closes the stream."""

    def current_stream(self) -> StreamRef:
        """Return the calling thread's current stream."""

    def same_in_all_threads(self, stream: StreamRef) -> bool:
        """Return True if the handle of ``stream`` names the same stream in every thread."""

    def capturing(self, stream: StreamRef) -> bool:
        """Return True if ``stream`` records enqueued work into a CUDA graph instead of running it."""

    def h2d(
        self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef, at: int = 0, offset: int = 0
    ) -> None:
        """Enqueue a copy of ``nbytes`` bytes of host memory to the device.

        The copy reads ``src`` from byte ``offset`` and writes ``dst`` from byte ``at``. Both blocks must live until the
        copy has run.
        """

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef, offset: int = 0) -> None:
        """Enqueue a copy of ``nbytes`` bytes of ``src``, from byte ``offset``, to ``dst``. Both blocks must outlive the
        copy."""

    def prepare_cast(self) -> None:
        """Compile the kernels that :meth:`cast` needs. Can take seconds, so call it before the first cast.

        Raises:
            DeviceUnavailableError: The kernels cannot be compiled or loaded.
        """

    def cast(self, dst: DeviceBlock, src: DeviceBlock, plan: CastPlan, stream: StreamRef) -> None:
        """Enqueue the cast of a batch of images from ``src`` to ``dst``. Both blocks must outlive the cast."""

    def mark(self, stream: StreamRef) -> Mark:
        """Record a mark after everything enqueued on ``stream`` so far."""

    def timed_mark(self, stream: StreamRef) -> Mark:
        """Record a mark that stores when the device passes it. Slower than :meth:`mark`: use it for profiles only."""

    def elapsed_s(self, first: Mark, then: Mark) -> float:
        """Return the seconds between two timed marks. The device must have passed both marks."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        """Make work enqueued on ``stream`` after this call wait for ``mark``. Does not block the calling thread."""

    def join(self, mark: Mark) -> None:
        """Block the calling thread, with the GIL released, until the device has passed ``mark``."""

    def finished(self, mark: Mark) -> bool:
        """Return True if the device has passed ``mark``. May hold the GIL: use it for closing and in tests only."""

    def retire(self, mark: Mark) -> None:
        """Return a mark to the backend for reuse. No thread or stream may wait for the mark afterwards."""

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NativeArray:
        """Return the bytes of ``block`` from byte ``offset`` as a C-ordered array that keeps the block alive."""

    def address(self, block: DeviceBlock) -> int:
        """Return the address of the first byte of ``block``."""

    def block_at(self, address: int, nbytes: int, owner: object) -> DeviceBlock:
        """Wrap memory owned by ``owner`` as a block. The block and every view of it keep ``owner`` alive."""

    def block_of(self, array: NativeArray) -> DeviceBlock:
        """Return the memory of a C-ordered array of the device's own library as a block that keeps the array alive.

        Raises:
            TypeError: The array is not a writable NumPy array on ``cpu``, or not a CuPy array on this ``cuda`` device.
        """

    def dlpack_device(self, array: NativeArray) -> tuple[int, int]:
        """Return the DLPack device type and device index of an array of the device's own library."""

    def dlpack(self, array: NativeArray, **asked: Any) -> Any:
        """Return a DLPack capsule of an array of the device's own library, without ordering any stream.

        Args:
            asked: Further keyword arguments of the DLPack protocol, passed to the array's ``__dlpack__``.
        """

    def close(self) -> None:
        """Drop streams and marks. Idempotent. Blocks live until their last reference is dropped."""
