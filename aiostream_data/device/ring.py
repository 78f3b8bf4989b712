"""Move batches through slots (reusable buffers) in host memory and in device memory.

A copy has exclusive access to its slots: no other operation uses these slots until the copy has finished.

A producer acquires a host slot, writes a batch into the slot and submits the slot. ``submit`` enqueues the copy to a
device slot on the ring's own stream, and does not wait for the copy. The consumer then copies the batch out of the
device slot on *its own* stream. Alternatively, the consumer uses the batch in the slot and then releases the slot. Only
the thread that calls ``join_oldest``, which frees host slots, waits for the device. Four rules prevent the ring from
overwriting data that is still in use. For each rule, a test disables the rule and detects overwritten data:

* A host slot is reused only after ``join`` has waited for the copy that reads the slot. Memory that another process
  lent for a batch (:mod:`.shared_slots`) is also reused only after ``join`` has waited for the batch's copies.
* A copy overwrites a device slot only after *every* stream that used the slot has finished its work on the slot.
* A stream reads a batch only after waiting for the copy of *this* batch.
* If a slot is replaced by a larger slot, the old memory is freed only after ``join`` has waited for its last use.

A mark is a recorded point in a stream. Each slot owns its marks, and retires an old mark when a new mark replaces it.
The ring fails permanently if the device fails, or if a call is interrupted after enqueueing a copy and before recording
its mark. After a failure, every call raises an error, and memory that a copy might still access is never freed.
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
"""Memory blocks that a copy might still access.

Blocks in this list are never freed, because the device could otherwise write into freed memory.
"""

_CLOSING_STEP_S = 0.001


@dataclass(frozen=True, slots=True)
class RingStats:
    """Statistics of a ring.

    Attributes:
        batches: Number of batches submitted.
        copied_nbytes: Number of bytes copied to the device for all batches.
        regrows: Number of slots that were replaced by larger slots.
        device_slots: Current number of device slots; less than requested if the device memory was too small.
        device_slots_asked: Requested number of device slots.
        leaked_leases: Number of batches that the consumer dropped without releasing them. The device slots of leaked
            batches are freed later.
        host_nbytes, device_nbytes: Memory of the host slots and of the device slots in bytes, now or when the ring was
            closed.
        pinned_nbytes: Number of bytes of ``host_nbytes`` that are page-locked. On a GPU, all of ``host_nbytes`` is
            page-locked, unless page-locking failed and ``allow_pageable`` is set. On ``cpu``, ``pinned_nbytes`` is 0.
        abandoned_nbytes: Number of bytes in blocks that are never freed because a copy might still access the block.
        shared: Statistics of batches that other processes wrote into shared memory.
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
    """Memory of all slots in bytes. The fields have the same meaning as in :class:`RingStats`."""

    host_nbytes: int
    device_nbytes: int
    pinned_nbytes: int


class SlotRing:
    """Ring of slots: host slots, device slots and one device stream that copies batches between them.

    Any thread may call the methods of a ``SlotRing``.

    After a device failure, all methods except :meth:`close` raise ``DeviceError``. Methods raise ``LoaderClosedError``
    after the ring was closed, and ``ForkedPipelineError`` in a forked child.
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
        """Create the ring. The memory of the slots is allocated when the first batches arrive.

        Args:
            backend: The device. The caller must close the backend after closing the ring.
            host_slots, device_slots: Number of host and device slots. The number of batches in the ring never exceeds
                the total number of host and device slots.
            slot_nbytes: Size of every slot in bytes; None to choose the size from the sizes of the batches.
            hand_over: Settings for delivering batches to consumers; None to deliver copies as NumPy or CuPy arrays.
            allow_pageable: True to use pageable host memory, with a warning, if the system refuses to page-lock the
                memory.
            profile: True to measure the time of every copy to the device.
            shared: Object that copies batches directly from shared memory that other processes wrote. The ring closes
                this object. If ``shared`` is None, all batches are copied through host slots.

        Raises:
            PlanError: The number of host or device slots is below 1.
        """
        for name, value in (("host_slots", host_slots), ("device_slots", device_slots)):
            if value < 1:
                raise PlanError(f"{name} must be at least 1, got {value}")
        self._backend = backend
        # Host and device slots differ in size: arrays in shared memory bypass the host slot.
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
        """Return a host slot for writing a batch, or None if no slot is free. Never waits.

        The caller owns the slot until :meth:`submit` or :meth:`give_back` takes the slot.
        """
        self.state.check()
        return self._host.acquire()

    def arrays(self, slot: HostSlot, layout: BatchLayout) -> list[NDArray[Any]]:
        """Return the arrays of ``layout`` in an acquired slot. The caller writes the batch into these arrays.

        Raises:
            SlotTooSmallError: The layout needs more than ``slot_nbytes`` bytes.
            DeviceMemoryError: The memory of the slot cannot be allocated or page-locked.
        """
        self.state.check()
        return self._host.arrays(slot, layout)

    def transfer(self, slot: HostSlot, parts: TakenApart, lease: object = None) -> Transfer:
        """Plan the copies of a batch to the device, from a host slot and from memory that other processes lent.

        Args:
            lease: Object to keep alive as long as the lent memory is in use.

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
        """Enqueue the copies of a batch to the device, and do not wait for the copies.

        Args:
            slot: Acquired slot that contains the batch, written through :meth:`arrays`.
            layout: Layout of the batch in the device slot.
            kept: Leaves that are not arrays, as returned by :func:`~aiostream_data.device.layout.take_apart`.
            copies: Copies that :meth:`transfer` planned; None if the host slot holds the complete batch.

        Returns:
            The batch, or None if no device slot is free. If the result is None, the caller still owns ``slot``. The
            copies of several batches run in the order of the calls.

        Raises:
            DeviceMemoryError: The device memory is too small for even one slot; the caller still owns ``slot``.
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
            # Record two marks at one point, because the host slot and the device slot each own and retire one.
            target.marks = [backend.mark(stream)]
            target.arrival = Arrival(nbytes)
            behind = backend.timed_mark(stream) if self._profile else backend.mark(stream)
            self._host.copying(slot, behind, begun, target.arrival)
        self.state.measures.launches += len(copies)
        self._batches += 1
        self._copied_nbytes += nbytes

    def has_device_slot(self) -> bool:
        """Return True if a device slot is free.

        An event loop may call this method, because the method never waits and takes no lock.
        """
        self.state.check()
        return self._device.any_free

    def give_back(self, slot: HostSlot) -> None:
        """Free an acquired host slot that will not be submitted. A submitted slot is not changed."""
        if not self.state.forked:
            self._host.give_back(slot)

    @interrupts_after()
    def join_oldest(self) -> bool:
        """Wait, with the GIL released, until the oldest copy to the device has ended, and free its host slot.

        If no copy is pending, wait for the oldest batch that JAX is copying, and free the device slot of that batch.

        Returns:
            False if the method did not wait, because no copy is pending or other threads already wait for all pending
            copies.
        """
        self.state.check()
        self.reclaim()
        return self._host.join_oldest() or self._device.leases.end_oldest_owed()

    def reclaim(self) -> None:
        """Free the device slots of leaked leases, which have no remaining arrays but were never released.

        The method never waits while the ring is open.
        """
        self._device.leases.end_leaked()

    @property
    def all_leased(self) -> bool:
        """True if consumers use every device slot, so that no batch can arrive before a slot is released."""
        return self._device.all_held

    def stats(self) -> RingStats:
        """Return the statistics of the ring."""
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
        """Close the ring: wake all waiting threads, wait up to ``timeout_s`` seconds for copies, and free the slots.

        Idempotent.

        Memory that a copy may still access is never freed. A ``ResourceWarning`` reports the size of memory that is not
        freed. The method does nothing in a forked child process.
        """
        deadline = time.monotonic() + timeout_s
        if not self.state.close(timeout_s):
            return
        if not self.state.failed:  # after a failure, threads may never return, and memory in use is never freed
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
                f"device stage on {self._backend.device} closed with unfinished or failed copies: "
                f"{self._abandoned_nbytes} bytes were not freed",
                ResourceWarning,
                stacklevel=2,
            )

    def _settle_loan(self, slot: HostSlot, in_use: bool) -> None:
        if not in_use:
            slot.end_loan()
        elif slot.lent is not None:
            slot.lent.abandon()
            _ABANDONED.append(slot.lent)  # the lent memory never returns to the process that lent it

    def _close_shared(self, deadline: float) -> None:
        answers = self._shared.stop(max(0.0, deadline - time.monotonic())) and not self.state.failed
        if answers:
            # Threads about to submit such a batch get LoaderClosedError, and release the lent memory.
            self.state.wait_until(lambda: self._shared.idle, max(0.0, deadline - time.monotonic()))
        for block in self._shared.close(keep_all=not answers):
            self._abandon(block)

    def _abandon(self, block: HostBlock | DeviceBlock) -> None:
        _ABANDONED.append(block)
        self._abandoned_nbytes += block.nbytes

    def _anyone_inside(self) -> bool:
        """True while another thread waits for a copy to the device, or is enqueueing a copy out of a device slot."""
        joining = any(slot.state is HostState.JOINING for slot in self._host.all)
        return joining or any(slot.state is DeviceState.READING for slot in self._device.all)

    def _may_be_in_use(self, slot: HostSlot | DeviceSlot, deadline: float) -> bool:
        idle = slot.state in (HostState.FREE, HostState.FILLING, DeviceState.FREE)
        if slot.state is DeviceState.READING or (self.state.failed and not idle):
            return True  # work may have been enqueued after the slot's mark
        return not all(self._passed(mark, deadline) for mark in slot.marks)

    def _passed(self, mark: Mark, deadline: float) -> bool:
        try:
            # Poll, because a blocking wait for the device has no timeout.
            while not self._backend.finished(mark):
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_CLOSING_STEP_S)
        except AiostreamError:  # after an error, finished copies cannot be told from pending ones
            return False
        return True
