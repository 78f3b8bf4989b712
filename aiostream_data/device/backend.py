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
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

DeviceArray: TypeAlias = Any
"""``numpy.ndarray`` on ``cpu``, ``cupy.ndarray`` on ``cuda``. Any, so that CuPy need not be installed."""

ALIGNMENT = 256
"""Alignment in bytes of every block and of every array in it: what cudaMalloc gives and kernels like."""


@dataclass(frozen=True, slots=True, eq=False)
class HostBlock:
    """Host memory that the device can copy from directly (page-locked on a GPU).

    Attributes:
        bytes: uint8, shape (nbytes,), starting on an :data:`ALIGNMENT` boundary. The block lives as
            long as this array or a view of it does.
    """

    bytes: NDArray[np.uint8]

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
    """A recorded point in a stream. Made by :meth:`DeviceBackend.mark` only, so it is always recorded.

    A mark has one owner, who hands it to :meth:`DeviceBackend.retire` when nobody will wait for it.
    """

    event: Any


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
            DeviceMemoryError: The memory cannot be had or cannot be page-locked.
        """

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

    def h2d(self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef) -> None:
        """Enqueue a copy of the first ``nbytes`` of ``src`` to ``dst``; both must live until it has run."""

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef) -> None:
        """Enqueue a copy of the first ``nbytes`` of ``src`` to ``dst``; both must live until it has run."""

    def mark(self, stream: StreamRef) -> Mark:
        """Record a mark behind everything enqueued on ``stream`` so far."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        """Make what is enqueued on ``stream`` from now on run after ``mark``. Returns at once."""

    def join(self, mark: Mark) -> None:
        """Block the calling thread, with the GIL released, until the device has passed ``mark``."""

    def finished(self, mark: Mark) -> bool:
        """Say whether the device has passed ``mark``. For closing and tests: it may hold the GIL."""

    def retire(self, mark: Mark) -> None:
        """Take back a mark for which nobody waits, nor will: it may be recorded anew."""

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """Return the bytes of ``block`` from ``offset`` on as a C-ordered array that keeps it alive."""

    def close(self) -> None:
        """Drop streams and marks. Idempotent. Blocks live until their last reference is gone."""
