"""What the device stage asks of a device: memory, streams, copies and marks, and no policy.

How this works. Work for a device is *enqueued* on a stream and runs later, in that stream's order;
two streams know nothing of each other. A **mark** is a recorded point in a stream. It is waited for
in two ways: ``order_after`` makes another *stream* wait (the host goes on at once), ``join`` makes
the calling *thread* wait. Everything the stage must keep in order, it orders with these two.

Three classes implement the protocol: :class:`~aiostream_data.device.host.HostBackend` (NumPy, runs
at once), ``CupyBackend`` in ``cuda.py``, and ``testing.adversarial.AdversarialBackend``, which runs
enqueued work as late and as interleaved as the rules allow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from aiostream_data.device.batch_layout import CastPlan

NativeArray: TypeAlias = Any
"""``numpy.ndarray`` on ``cpu``, ``cupy.ndarray`` on ``cuda``. Any, so that CuPy need not be installed."""

ALIGNMENT = 256
"""Alignment in bytes of every block and of every array in it: what cudaMalloc gives and kernels like."""

NO_STREAM = -1
"""What an importer of DLPack names that does not want to be ordered."""


@dataclass(frozen=True, slots=True, eq=False)
class HostBlock:
    """Host memory that the device can copy from directly (page-locked on a GPU).

    Attributes:
        bytes: uint8, shape (nbytes,), starting on an :data:`ALIGNMENT` boundary. The block lives as
            long as this array or a view of it does.
        pinned: Page-locked. A copy from other memory is right, too, but slower, and part of it is done by the
            thread that enqueues it.
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
        nbytes: Its size.
        memory: What the backend knows it by; dropping the last reference frees it.
    """

    nbytes: int
    memory: Any


@dataclass(frozen=True, slots=True)
class StreamRef:
    """One stream.

    Attributes:
        ptr: Its handle, unique within a device.
        owner: Keeps the stream alive; None when somebody else does.
    """

    ptr: int
    owner: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A recorded point in a stream. Made by :class:`DeviceBackend` only, so it is always recorded.

    A mark has one owner, who hands it to :meth:`DeviceBackend.retire` when nobody will wait for it.

    Attributes:
        event: What the backend knows it by.
        timed: It was made by :meth:`DeviceBackend.timed_mark`.
    """

    event: Any
    timed: bool = False


class DeviceBackend(Protocol):
    """One device. Methods may be called from any thread, never from an event loop.

    Every method raises :class:`~aiostream_data.errors.DeviceError` when the device has failed.
    """

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:N``."""

    @property
    def keeps_objects(self) -> bool:
        """True when leaves that are no numbers may stay in a batch as they are."""

    def host_block(self, nbytes: int) -> HostBlock:
        """Allocate host memory for copies to the device; its content is undefined.

        Raises:
            PinningError: The memory cannot be had or cannot be page-locked.
        """

    def adopt_shared(self, memory: NDArray[np.uint8]) -> HostBlock:
        """Page-lock memory that another process writes too, so that the device copies from it directly.

        It stays page-locked, and mapped, until :meth:`disown_shared`. Who adopted it sees to that before :meth:`close`:
        afterwards it stays page-locked for ever, and must stay mapped.

        Args:
            memory: All of one mapping. No bytes are page-locked where there are none.

        Raises:
            PinningError: The system does not page-lock it.
        """

    def disown_shared(self, block: HostBlock) -> None:
        """Undo :meth:`adopt_shared`. No copy that was enqueued may still read the block."""

    def device_block(self, nbytes: int) -> DeviceBlock:
        """Allocate device memory outside of every pool; its content is undefined.

        Raises:
            DeviceMemoryError: The device has no room.
        """

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        """Allocate device memory for the consumer, usable on the calling thread's current stream.

        Raises:
            DeviceMemoryError: The device has no room.
        """

    def stream(self) -> StreamRef:
        """Make a stream of our own that is ordered after no other. Closed with the backend."""

    def current_stream(self) -> StreamRef:
        """Return the stream on which the calling thread's own work runs."""

    def same_in_all_threads(self, stream: StreamRef) -> bool:
        """Return True if ``stream`` names one and the same stream in every thread."""

    def capturing(self, stream: StreamRef) -> bool:
        """Return True if work enqueued on ``stream`` would be recorded into a graph, and run later or never."""

    def h2d(
        self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef, at: int = 0, offset: int = 0
    ) -> None:
        """Enqueue a copy of ``nbytes`` of ``src``, from ``offset`` on, to ``dst``, from ``at`` on.

        Both must live until it has run.
        """

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef, offset: int = 0) -> None:
        """Enqueue a copy of ``nbytes`` of ``src``, from ``offset`` on, to ``dst``; both must live until it has run."""

    def prepare_cast(self) -> None:
        """Make ready what :meth:`cast` needs, as by compiling it: takes seconds at worst, so call it before the first.

        Raises:
            DeviceUnavailableError: It cannot be made ready.
        """

    def cast(self, dst: DeviceBlock, src: DeviceBlock, plan: CastPlan, stream: StreamRef) -> None:
        """Enqueue what takes a batch of images out of ``src`` into ``dst``; both must live until it has run."""

    def mark(self, stream: StreamRef) -> Mark:
        """Record a mark behind everything enqueued on ``stream`` so far."""

    def timed_mark(self, stream: StreamRef) -> Mark:
        """Record a mark that notes when the device passes it. Costs more than :meth:`mark`; for profiles only."""

    def elapsed_s(self, first: Mark, then: Mark) -> float:
        """Return the seconds between two timed marks that the device has passed."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        """Make what is enqueued on ``stream`` from now on run after ``mark``. Returns at once."""

    def join(self, mark: Mark) -> None:
        """Block the calling thread, with the GIL released, until the device has passed ``mark``."""

    def finished(self, mark: Mark) -> bool:
        """Return True if the device has passed ``mark``. For closing and tests: it may hold the GIL."""

    def retire(self, mark: Mark) -> None:
        """Take back a mark for which nobody waits, nor will: it may be recorded anew."""

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NativeArray:
        """Return the bytes of ``block`` from ``offset`` on as a C-ordered array that keeps it alive."""

    def address(self, block: DeviceBlock) -> int:
        """Return where ``block`` begins."""

    def block_at(self, address: int, nbytes: int, owner: object) -> DeviceBlock:
        """Return memory that is somebody else's as a block. It, and every view of it, keeps ``owner`` alive."""

    def block_of(self, array: NativeArray) -> DeviceBlock:
        """Return the memory of a C-ordered array of the device's own kind as a block that keeps it alive.

        Raises:
            TypeError: It is no writable array of NumPy on ``cpu``, or of CuPy on this ``cuda`` device.
        """

    def dlpack_device(self, array: NativeArray) -> tuple[int, int]:
        """Return where an array of the device's own kind is, in DLPack's numbers: the kind of device, and which one."""

    def dlpack(self, array: NativeArray, **asked: Any) -> Any:
        """Return a DLPack capsule of an array of the device's own kind, and order no stream.

        Args:
            asked: What else the protocol lets importers ask for.
        """

    def close(self) -> None:
        """Drop streams and marks. Idempotent. Blocks live until their last reference is gone."""
