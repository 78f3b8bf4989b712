"""Move batches through host and device slots, with no copy ever reading or writing too early.

How this works. A producer acquires a host slot, writes a batch into it and submits it. That enqueues
one copy to a device slot on the ring's own stream and returns at once. The consumer takes the batch
out on *its* stream, into memory of its own. Nobody waits for the device, except for the one thread
that gives a host slot back (``join_oldest``). Four waits keep it right; the tests remove each of
them and see data torn:

* a host slot is written again only after ``join`` of the mark behind the copy that read it;
* a device slot is written again only with the copy stream ordered after the mark behind its last use;
* a batch is taken out only with the consumer's stream ordered after the mark behind *that* batch;
* memory that a slot outgrew is let go only after ``join`` of the mark behind its last use.

A mark belongs to the slot that it stands behind and is retired when it is replaced. When the device
fails, or a call is torn off between enqueueing a copy and marking its end, the ring fails for good:
every later call raises, and memory that a copy might still reach is never freed.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBackend, Mark
from aiostream_data.device.device_slots import DeviceBatch, DeviceSlots
from aiostream_data.device.host_slots import HostSlots
from aiostream_data.device.layout import BatchLayout
from aiostream_data.device.ring_state import RingState
from aiostream_data.device.slots import DeviceSlot, DeviceState, HostSlot, HostState, SlotSize
from aiostream_data.errors import DeviceError, PlanError

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
        host_nbytes, device_nbytes: Memory that the slots hold now.
        abandoned_nbytes: Memory never freed because a copy might still reach it.
    """

    batches: int = 0
    copied_nbytes: int = 0
    regrows: int = 0
    device_slots: int = 0
    host_nbytes: int = 0
    device_nbytes: int = 0
    abandoned_nbytes: int = 0


class SlotRing:
    """K host slots, M device slots and one copy stream. Methods may be called from any thread.

    All but :meth:`close` raise ``DeviceError`` after the device failed, ``LoaderClosedError`` after
    the ring was closed and ``ForkedPipelineError`` in a forked child.
    """

    def __init__(
        self, backend: DeviceBackend, host_slots: int = 3, device_slots: int = 3, slot_nbytes: int | None = None
    ) -> None:
        """Make the ring; its memory is allocated when the first batches come.

        Args:
            backend: The device; closed by its owner, after the ring.
            host_slots, device_slots: How many of each. Their sum bounds the batches held at once.
            slot_nbytes: Size of every slot in bytes; None: what the batches turn out to need.

        Raises:
            PlanError: A number is below 1.
        """
        for name, value in (("host_slots", host_slots), ("device_slots", device_slots)):
            if value < 1:
                raise PlanError(f"{name} must be at least 1, got {value}")
        self._backend = backend
        self._size = SlotSize(slot_nbytes)
        self.state = RingState()
        self._host = HostSlots(backend, host_slots, self._size, self.state)
        self._device = DeviceSlots(backend, device_slots, self._size, self.state)
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

    def submit(self, slot: HostSlot, layout: BatchLayout, kept: list[Any]) -> DeviceBatch | None:
        """Enqueue the copy of a written slot to the device, and return at once.

        Args:
            slot: Acquired, and written through :meth:`arrays` with this layout.
            layout: What is in it.
            kept: What :func:`~aiostream_data.device.layout.take_apart` kept beside it.

        Returns:
            The batch, the copies running in the order of these calls; or None when no device slot is
            free, and then ``slot`` is still the caller's.

        Raises:
            DeviceMemoryError: The device has no room even for one slot; ``slot`` is the caller's.
        """
        self.state.check()
        with self.state.lock:
            self.state.check()
            assert slot.state is HostState.FILLING, "only a slot that was acquired may be submitted"
            target = self._device.take(layout.nbytes)
            if target is None:
                return None
            self._enqueue_copy(slot, target, layout.nbytes)
            return DeviceBatch(self._device, target, layout, kept)

    def _enqueue_copy(self, slot: HostSlot, target: DeviceSlot, nbytes: int) -> None:
        backend, stream, used = self._backend, self._copy_stream, target.mark
        assert slot.block is not None
        assert target.block is not None
        slot.state, target.state = HostState.COPYING, DeviceState.HOLDING
        with self.state.fatal():
            if used is not None:
                backend.order_after(stream, used)
                backend.retire(used)
            backend.h2d(target.block, slot.block, nbytes, stream)
            # Two marks at one point: each has one owner, who alone decides when it is done with.
            target.mark = backend.mark(stream)
            self._host.copying(slot, backend.mark(stream))
        self._batches += 1
        self._copied_nbytes += nbytes

    def give_back(self, slot: HostSlot) -> None:
        """Free an acquired slot that will not be submitted; leave a submitted one as it is."""
        if not self.state.forked:
            self._host.give_back(slot)

    def join_oldest(self) -> bool:
        """Block, with the GIL released, until the oldest copy has run, and free its host slot.

        Returns:
            False, at once, when there is no copy that no other thread waits for.
        """
        self.state.check()
        return self._host.join_oldest()

    def stats(self) -> RingStats:
        """Return what the ring has done so far."""
        return RingStats(
            batches=self._batches,
            copied_nbytes=self._copied_nbytes,
            regrows=self._size.regrows,
            device_slots=len(self._device.all),
            host_nbytes=sum(slot.block.nbytes for slot in self._host.all if slot.block),
            device_nbytes=sum(slot.block.nbytes for slot in self._device.all if slot.block),
            abandoned_nbytes=self._abandoned_nbytes,
        )

    def close(self, timeout_s: float = 2.0) -> None:
        """Wake all who wait, let copies end for at most ``timeout_s``, and drop the slots. Idempotent.

        Memory that a copy may still reach then is never freed, and a ``ResourceWarning`` says how
        much. In a forked child this does nothing.
        """
        if not self.state.close():
            return
        deadline = time.monotonic() + timeout_s
        # After a failure nobody may ever leave, and what they use is not freed anyway.
        self.state.wait_until(lambda: self.state.failed or not self._anyone_inside(), timeout_s)
        slots: list[HostSlot | DeviceSlot] = [*self._host.all, *self._device.all]
        for slot in slots:
            if slot.block is not None and self._may_be_in_use(slot, deadline):
                _ABANDONED.append(slot.block)
                self._abandoned_nbytes += slot.block.nbytes
            slot.block = slot.mark = None
        if self._abandoned_nbytes:
            warnings.warn(
                f"device stage on {self._backend.device} closed with copies unfinished or failed: "
                f"{self._abandoned_nbytes} bytes are not freed",
                ResourceWarning,
                stacklevel=2,
            )

    def _anyone_inside(self) -> bool:
        """True while another thread waits for a copy, or enqueues one that takes a batch out."""
        joining = any(slot.state is HostState.JOINING for slot in self._host.all)
        return joining or any(slot.state is DeviceState.READING for slot in self._device.all)

    def _may_be_in_use(self, slot: HostSlot | DeviceSlot, deadline: float) -> bool:
        idle = slot.state in (HostState.FREE, HostState.FILLING, DeviceState.FREE)
        if slot.state is DeviceState.READING or (self.state.failed and not idle):
            return True  # something may have been enqueued behind its mark
        return slot.mark is not None and not self._passed(slot.mark, deadline)

    def _passed(self, mark: Mark, deadline: float) -> bool:
        try:
            # Asked again and again, because a wait for the device cannot be bounded in time.
            while not self._backend.finished(mark):
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_CLOSING_STEP_S)
        except DeviceError:
            return False
        return True
