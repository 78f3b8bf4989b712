"""A batch on its way into a host slot: written by any thread, submitted in its turn, or dropped at any moment."""

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
    """Who has the slot."""

    WAITING = auto()
    """This object; nobody uses it at the moment."""
    BUSY = auto()
    """A thread that writes or submits."""
    OVER = auto()
    """The ring: it was submitted, or given back."""


class Filling:
    """Owns an acquired host slot until it is submitted or dropped. One per batch.

    ``write`` and ``submit`` are called one after the other, from whichever threads; ``drop`` from any thread at any
    time: a slot that is being written meanwhile is given back by its writer, when that is done, and never before.

    Attributes:
        sent: What became of it once it was submitted; None before, and once it was taken.
    """

    def __init__(
        self, ring: SlotRing, backend: DeviceBackend, slot: HostSlot, batch: Any, lease: object = None
    ) -> None:
        """Take over ``slot``, and keep ``batch`` and ``lease`` until the slot is written."""
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
        """Write the batch into the slot, with the GIL released, and let go of it. Does nothing when it was dropped.

        Args:
            prepare: What is done to it, taken apart, before it is written, as by :func:`~.cast_plan.with_cast`.

        Raises:
            DeviceLeafError, SlotTooSmallError, DeviceMemoryError: It cannot be; the slot is free again.
            DeviceError, LoaderClosedError, ForkedPipelineError: The ring cannot be used any more.
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
        """Enqueue the copy to the device; False when no device slot is free, and then it may be called again.

        Copies run in the order of these calls. True, too, when it was dropped.

        Raises:
            DeviceMemoryError: The device has no room even for one slot; the host slot is free again.
            DeviceError, LoaderClosedError, ForkedPipelineError: The ring cannot be used any more.
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
        """Return the batch that was sent, which is its caller's from now on."""
        with self._lock:
            sent, self.sent = self.sent, None
        assert sent is not None, "only what was submitted may be taken"
        return sent

    def drop(self) -> None:
        """Give the slot back, and discard what was sent and not taken. Idempotent; does nothing when it was taken."""
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
        """Release everything it holds. The caller holds the lock."""
        if self._phase is _FillPhase.WAITING:
            self._phase = _FillPhase.OVER
            self._batch = self._lease = None
            self._ring.give_back(self._slot)
        sent, self.sent = self.sent, None
        if sent is not None:
            sent.discard()
