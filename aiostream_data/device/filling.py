"""Fill one host slot (a buffer in host memory) with a batch. Any thread can write, submit or drop the host slot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from aiostream_data.device.backend import DeviceBackend
from aiostream_data.device.batch_layout import BatchLayout
from aiostream_data.device.copies import SlotCopy
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.layout import TakenApart, fill, take_apart
from aiostream_data.device.ring import SlotRing
from aiostream_data.device.shared_slots import Transfer
from aiostream_data.device.slots import HostSlot
from aiostream_data.rows.parts import Parts


class _FillPhase(Enum):
    """State of a host slot; determines who owns the slot."""

    WAITING = auto()
    """The ``Filling`` object owns the host slot, and no thread accesses the slot."""
    BUSY = auto()
    """A thread is writing or submitting the host slot."""
    OVER = auto()
    """The ring owns the host slot, because the slot was submitted or returned."""


class Filling:
    """Owner of one host slot from its acquisition until its submission or return. One object per batch.

    A thread calls ``write``, and then the same thread or another thread calls ``submit``. Any thread may call ``drop``
    at any time. If a thread is writing the slot when ``drop`` is called, this thread returns the slot after the write.

    Attributes:
        sent: The submitted batch; None before ``submit`` and after :meth:`take`.
    """

    def __init__(
        self, ring: SlotRing, backend: DeviceBackend, slot: HostSlot, batch: Any, lease: object = None
    ) -> None:
        """Take ownership of ``slot``. ``batch`` and ``lease`` stay alive until the slot is written."""
        self._ring = ring
        self._backend = backend
        self._slot = slot
        self._batch = batch
        self._lease = lease
        self._layout: BatchLayout | None = None
        self._kept: list[Any] = []
        self._copies: Sequence[SlotCopy] = ()
        self._phase = _FillPhase.WAITING
        self._dropped = False
        self._lock = threading.Lock()
        self.sent: DeviceBatch | None = None

    def write(self, prepare: Callable[[TakenApart], TakenApart] | None = None) -> None:
        """Write the batch into the slot, with the GIL released, and release the batch. Does nothing after :meth:`drop`.

        Args:
            prepare: Function that transforms the arrays of the batch before the write, such as
                :func:`~.cast_plan.with_cast`.

        Raises:
            DeviceLeafError, SlotTooSmallError, DeviceMemoryError: The batch cannot be written. The ring can reuse the
                slot.
            DeviceError, LoaderClosedError, ForkedPipelineError: The ring of slots can no longer be used.
        """
        if not self._begin():
            return
        try:
            parts = take_apart(self._batch, self._backend.device, self._backend.keeps_objects)
            parts = parts if prepare is None else prepare(parts)
            transfer = self._ring.transfer(self._slot, parts, self._lease)
            if transfer.sources or transfer.lent is None:
                fill(self._ring.arrays(self._slot, transfer.staged), transfer.sources)
            self._layout, self._kept, self._copies = parts.layout, parts.kept, transfer.copies
            self._count(transfer)
        except BaseException:
            self._dropped = True
            raise
        finally:
            self._batch = self._lease = None
            self._end()

    def _count(self, transfer: Transfer) -> None:
        nbytes = sum(source.nbytes for source in transfer.sources)
        whole = sum(source.nbytes for source in transfer.sources if not isinstance(source, Parts))
        self._ring.state.measures.wrote(nbytes, whole)

    def submit(self) -> bool:
        """Enqueue the copy of the host slot to the device.

        Return False if no device slot is free. The caller can then retry.

        The copies of several batches run in the order of the ``submit`` calls. Returns True after :meth:`drop`.

        Raises:
            DeviceMemoryError: The device memory is too small for even one slot. The ring can reuse the host slot.
            DeviceError, LoaderClosedError, ForkedPipelineError: The ring of slots can no longer be used.
        """
        if not self._begin():
            return True
        assert self._layout is not None, "only what was written may be submitted"
        try:
            self.sent = self._ring.submit(self._slot, self._layout, self._kept, self._copies)
        except BaseException:
            self._dropped = True
            raise
        finally:
            self._end()
        return self.sent is not None or self._dropped

    def take(self) -> DeviceBatch:
        """Return the submitted batch and transfer its ownership to the caller."""
        with self._lock:
            sent, self.sent = self.sent, None
        assert sent is not None, "only what was submitted may be taken"
        return sent

    def drop(self) -> None:
        """Return the host slot to the ring, and discard a submitted batch that was not taken.

        The method does nothing if it was already called, or after :meth:`take`.
        """
        with self._lock:
            self._dropped = True
            if self._phase is not _FillPhase.BUSY:
                self._let_go()

    def _begin(self) -> bool:
        with self._lock:
            if self._phase is _FillPhase.OVER:
                return False
            self._phase = _FillPhase.BUSY
            return True

    def _end(self) -> None:
        with self._lock:
            self._phase = _FillPhase.WAITING if self.sent is None else _FillPhase.OVER
            if self._dropped:
                self._let_go()

    def _let_go(self) -> None:
        """Release the host slot, the batch and the lease. The caller must hold the lock of the ``Filling`` object."""
        if self._phase is _FillPhase.WAITING:
            self._phase = _FillPhase.OVER
            self._batch = self._lease = None
            self._ring.give_back(self._slot)
        sent, self.sent = self.sent, None
        if sent is not None:
            sent.discard()
