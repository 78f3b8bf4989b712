"""Move batches through host and device slots, with no copy ever reading or writing too early.

How this works. A producer acquires a host slot, writes a batch into it and submits it. That enqueues
one copy to a device slot on the ring's own stream and returns at once. The consumer takes the batch
out on *its* stream, into memory of its own, or uses it where it is until it gives it back. Nobody
waits for the device, except for the one thread that gives a host slot back (``join_oldest``). Four
waits keep it right; the tests remove each of them and see data torn:

* a host slot is written again only after ``join`` of the mark behind the copy that read it, and so is memory that
  another process lent for the same batch (:mod:`.shared_slots`);
* a device slot is written again only with the copy stream ordered after a mark on *every* stream that used it;
* a batch is taken out, or used, only on a stream ordered after the mark behind *that* batch;
* memory that a slot outgrew is let go only after ``join`` of the mark behind its last use.

A mark belongs to the slot that it stands behind and is retired when it is replaced. When the device
fails, or a call is torn off between enqueueing a copy and marking its end, the ring fails for good:
every later call raises, and memory that a copy might still reach is never freed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBackend, DeviceBlock, HostBlock, Mark
from aiostream_data.device.batch_layout import BatchLayout
from aiostream_data.device.copies import SlotCopy, whole
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.device_slots import DeviceSlots
from aiostream_data.device.handover import HandOver
from aiostream_data.device.host_slots import HostSlots
from aiostream_data.device.layout import TakenApart
from aiostream_data.device.measures import Arrival
from aiostream_data.device.ring_state import RingState
from aiostream_data.device.shared_slots import SharedSlots, SharedStats, Transfer
from aiostream_data.device.slots import DeviceSlot, DeviceState, HostSlot, HostState, SlotSize
from aiostream_data.device.staging import Staging
from aiostream_data.errors import AiostreamError, DeviceError, PlanError
from aiostream_data.interrupts import interrupts_after

_ABANDONED: list[object] = []
"""Blocks that a copy might still reach. Kept to the end of the process, since freeing them could
let the device write into memory that belongs to somebody else by then."""

_CLOSING_STEP_S = 0.001


@dataclass(frozen=True, slots=True)
class RingStats:
    """What a ring has done so far.

    Attributes:
        batches: Batches submitted.
        copied_nbytes: Bytes copied to the device for them.
        regrows: Slots replaced by larger ones.
        device_slots: How many there are; fewer than asked for when the device had no room.
        device_slots_asked: How many there were to be.
        leaked_leases: Batches whose consumer let go of them without giving them back; their slots were free later.
        host_nbytes, device_nbytes: Memory that the slots hold now, or held when the ring was closed.
        pinned_nbytes: How much of ``host_nbytes`` is page-locked: all of it on a GPU, unless that was refused and
            ``allow_pageable`` is set; nothing on ``cpu``.
        abandoned_nbytes: Memory never freed because a copy might still reach it.
        shared: What became of batches that other processes wrote.
    """

    batches: int = 0
    copied_nbytes: int = 0
    regrows: int = 0
    device_slots: int = 0
    device_slots_asked: int = 0
    leaked_leases: int = 0
    host_nbytes: int = 0
    device_nbytes: int = 0
    pinned_nbytes: int = 0
    abandoned_nbytes: int = 0
    shared: SharedStats = field(default_factory=SharedStats)


class _SlotMemory(NamedTuple):
    """Bytes of all slots; the names are those of :class:`RingStats`."""

    host_nbytes: int
    device_nbytes: int
    pinned_nbytes: int


class SlotRing:
    """K host slots, M device slots and one copy stream. Methods may be called from any thread.

    All but :meth:`close` raise ``DeviceError`` after the device failed, ``LoaderClosedError`` after
    the ring was closed and ``ForkedPipelineError`` in a forked child.
    """

    def __init__(
        self,
        backend: DeviceBackend,
        host_slots: int = 3,
        device_slots: int = 3,
        slot_nbytes: int | None = None,
        *,
        hand_over: HandOver | None = None,
        allow_pageable: bool = False,
        profile: bool = False,
        shared: SharedSlots | None = None,
    ) -> None:
        """Make the ring; its memory is allocated when the first batches come.

        Args:
            backend: The device; closed by its owner, after the ring.
            host_slots, device_slots: How many of each. Their sum bounds the batches held at once.
            slot_nbytes: Size of every slot in bytes; None: what the batches turn out to need.
            hand_over: The terms on which consumers get batches; None: as copies, in the device's own library.
            allow_pageable: Do with plain host memory, and say so, where the system refuses to page-lock it.
            profile: Time every copy to the device.
            shared: Copies batches from where other processes wrote them; closed with the ring. None: all go through
                host slots.

        Raises:
            PlanError: A number is below 1.
        """
        for name, value in (("host_slots", host_slots), ("device_slots", device_slots)):
            if value < 1:
                raise PlanError(f"{name} must be at least 1, got {value}")
        self._backend = backend
        # Two, as a host slot holds only what is written into it, and a device slot all of a batch.
        self._sizes = SlotSize(slot_nbytes), SlotSize(slot_nbytes)
        self.state = RingState()
        self._host = HostSlots(backend, host_slots, self._sizes[0], self.state, Staging(backend, allow_pageable))
        self._device = DeviceSlots(backend, device_slots, self._sizes[1], self.state, hand_over)
        self._shared = shared or SharedSlots(backend)
        self._profile = profile
        self._device_slots_asked = device_slots
        self._closed_with: _SlotMemory | None = None
        self._copy_stream = backend.stream()
        self._batches = 0
        self._copied_nbytes = 0
        self._abandoned_nbytes = 0

    def acquire(self) -> HostSlot | None:
        """Return a host slot to write into, or None when none is free. Never waits.

        The slot is the caller's until :meth:`submit` has taken it or :meth:`give_back` has got it.
        """
        self.state.check()
        return self._host.acquire()

    def arrays(self, slot: HostSlot, layout: BatchLayout) -> list[NDArray[Any]]:
        """Return the arrays of ``layout`` in an acquired slot, to be written in place.

        Raises:
            SlotTooSmallError: The layout needs more than ``slot_nbytes``.
            DeviceMemoryError: So much memory cannot be page-locked.
        """
        self.state.check()
        return self._host.arrays(slot, layout)

    def transfer(self, slot: HostSlot, parts: TakenApart, lease: object = None) -> Transfer:
        """Return how a batch reaches the device from an acquired slot, and from what another process has lent for it.

        Args:
            lease: Kept as long as the lent memory is.

        Raises:
            DeviceError: The device failed.
        """
        self.state.check()
        try:
            transfer = self._shared.transfer(parts, lease)
        except DeviceError as error:
            with self.state.lock:
                self.state.fail(error)
            raise
        slot.lent = transfer.lent
        return transfer

    @interrupts_after()
    def submit(
        self, slot: HostSlot, layout: BatchLayout, kept: list[Any], copies: Sequence[SlotCopy] | None = None
    ) -> DeviceBatch | None:
        """Enqueue the copies of a batch to the device, and return at once.

        Args:
            slot: Acquired, and written through :meth:`arrays` with this layout, or with that of its :meth:`transfer`.
            layout: Of the batch in the device slot.
            kept: What :func:`~aiostream_data.device.layout.take_apart` kept beside it.
            copies: Those of its :meth:`transfer`; None: all of it stands in the slot.

        Returns:
            The batch, the copies running in the order of these calls; or None when no device slot is
            free, and then ``slot`` is still the caller's.

        Raises:
            DeviceMemoryError: The device has no room even for one slot; ``slot`` is the caller's.
        """
        self.state.check()
        self.reclaim()
        with self.state.lock:
            self.state.check()
            assert slot.state is HostState.FILLING, "only a slot that was acquired may be submitted"
            target = self._device.take(layout.nbytes)
            if target is None:
                return None
            self._enqueue_copies(slot, target, whole(layout) if copies is None else copies)
            return DeviceBatch(self._device, target, layout, kept)

    def _enqueue_copies(self, slot: HostSlot, target: DeviceSlot, copies: Sequence[SlotCopy]) -> None:
        backend, stream, used = self._backend, self._copy_stream, target.marks
        nbytes = sum(copy.nbytes for copy in copies)
        assert target.block is not None
        slot.state, target.state = HostState.COPYING, DeviceState.HOLDING
        with self.state.fatal():
            for mark in used:
                backend.order_after(stream, mark)
                backend.retire(mark)
            begun = backend.timed_mark(stream) if self._profile else None
            for copy in copies:
                source = slot.block if copy.block is None else copy.block
                assert source is not None, "what goes through the slot was written into it"
                backend.h2d(target.block, source, copy.nbytes, stream, copy.target, copy.start)
            # Two marks at one point: each has one owner, who alone decides when it is done with.
            target.marks = [backend.mark(stream)]
            target.arrival = Arrival(nbytes)
            behind = backend.timed_mark(stream) if self._profile else backend.mark(stream)
            self._host.copying(slot, behind, begun, target.arrival)
        self.state.measures.launches += len(copies)
        self._batches += 1
        self._copied_nbytes += nbytes

    def has_device_slot(self) -> bool:
        """Return True if a device slot is free. Never waits; takes no lock, so that an event loop may ask."""
        self.state.check()
        return self._device.any_free

    def give_back(self, slot: HostSlot) -> None:
        """Free an acquired slot that will not be submitted; leave a submitted one as it is."""
        if not self.state.forked:
            self._host.give_back(slot)

    @interrupts_after()
    def join_oldest(self) -> bool:
        """Block, with the GIL released, until the oldest copy has run, and free its host slot.

        Where there is none, block until the oldest batch that JAX copies was copied, and free its device slot.

        Returns:
            False, at once, when there is nothing of that that no other thread waits for.
        """
        self.state.check()
        self.reclaim()
        return self._host.join_oldest() or self._device.leases.end_oldest_owed()

    def reclaim(self) -> None:
        """Free the device slots of leases that nobody gave back and nobody can use any more. Never waits."""
        self._device.leases.end_leaked()

    @property
    def all_leased(self) -> bool:
        """True when consumers have every device slot, so that no batch can come until they give one back."""
        return self._device.all_held

    def stats(self) -> RingStats:
        """Return what the ring has done so far."""
        memory = self._closed_with or self._memory()
        return RingStats(
            batches=self._batches,
            copied_nbytes=self._copied_nbytes,
            regrows=sum(size.regrows for size in self._sizes),
            device_slots=len(self._device.all),
            device_slots_asked=self._device_slots_asked,
            leaked_leases=self._device.leases.leaked,
            host_nbytes=memory.host_nbytes,
            device_nbytes=memory.device_nbytes,
            pinned_nbytes=memory.pinned_nbytes,
            abandoned_nbytes=self._abandoned_nbytes,
            shared=self._shared.stats(),
        )

    def _memory(self) -> _SlotMemory:
        host = [slot.block for slot in self._host.all if slot.block is not None]
        return _SlotMemory(
            host_nbytes=sum(block.nbytes for block in host),
            device_nbytes=sum(slot.block.nbytes for slot in self._device.all if slot.block),
            pinned_nbytes=sum(block.nbytes for block in host if block.pinned),
        )

    def close(self, timeout_s: float = 2.0) -> None:
        """Wake all who wait, let copies end for at most ``timeout_s``, and drop the slots. Idempotent.

        Memory that a copy may still reach then is never freed, and a ``ResourceWarning`` says how
        much. In a forked child this does nothing.
        """
        deadline = time.monotonic() + timeout_s
        if not self.state.close(timeout_s):
            return
        if not self.state.failed:  # or nobody may ever leave, and what they use is not freed anyway
            self.state.wait_until(lambda: self.state.failed or not self._anyone_inside(), timeout_s)
            self._device.leases.mark_leaked(max(0.0, deadline - time.monotonic()))
        self._closed_with = self._memory()
        slots: list[HostSlot | DeviceSlot] = [*self._host.all, *self._device.all]
        for slot in slots:
            in_use = self._may_be_in_use(slot, deadline)
            if isinstance(slot, HostSlot):
                self._settle_loan(slot, in_use)
            if in_use and slot.block is not None:
                self._abandon(slot.block)
            slot.drop()
        self._close_shared(deadline)
        if self._abandoned_nbytes:
            warnings.warn(
                f"device stage on {self._backend.device} closed with copies unfinished or failed: "
                f"{self._abandoned_nbytes} bytes are not freed",
                ResourceWarning,
                stacklevel=2,
            )

    def _settle_loan(self, slot: HostSlot, in_use: bool) -> None:
        if not in_use:
            slot.end_loan()
        elif slot.lent is not None:
            slot.lent.abandon()
            _ABANDONED.append(slot.lent)  # what it keeps never goes back to the process that lent it

    def _close_shared(self, deadline: float) -> None:
        answers = self._shared.stop(max(0.0, deadline - time.monotonic())) and not self.state.failed
        if answers:
            # Whoever was about to submit such a batch hears that the ring is closed, and gives it up.
            self.state.wait_until(lambda: self._shared.idle, max(0.0, deadline - time.monotonic()))
        for block in self._shared.close(keep_all=not answers):
            self._abandon(block)

    def _abandon(self, block: HostBlock | DeviceBlock) -> None:
        _ABANDONED.append(block)
        self._abandoned_nbytes += block.nbytes

    def _anyone_inside(self) -> bool:
        """True while another thread waits for a copy, or enqueues one that takes a batch out."""
        joining = any(slot.state is HostState.JOINING for slot in self._host.all)
        return joining or any(slot.state is DeviceState.READING for slot in self._device.all)

    def _may_be_in_use(self, slot: HostSlot | DeviceSlot, deadline: float) -> bool:
        idle = slot.state in (HostState.FREE, HostState.FILLING, DeviceState.FREE)
        if slot.state is DeviceState.READING or (self.state.failed and not idle):
            return True  # something may have been enqueued behind its mark
        return not all(self._passed(mark, deadline) for mark in slot.marks)

    def _passed(self, mark: Mark, deadline: float) -> bool:
        try:
            # Asked again and again, because a wait for the device cannot be bounded in time.
            while not self._backend.finished(mark):
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_CLOSING_STEP_S)
        except AiostreamError:  # whatever it says, nobody knows what has run
            return False
        return True
