"""The host slots of a ring: lent to producers, read by the device, joined, lent again."""

from __future__ import annotations

from collections import deque
from typing import Any

from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBackend, Mark
from aiostream_data.device.batch_layout import BatchLayout
from aiostream_data.device.layout import views
from aiostream_data.device.measures import Arrival
from aiostream_data.device.ring_state import RingState
from aiostream_data.device.slots import HostSlot, HostState, SlotSize
from aiostream_data.device.staging import Staging


class HostSlots:
    """K host slots. Methods may be called from any thread."""

    def __init__(self, backend: DeviceBackend, count: int, size: SlotSize, state: RingState, staging: Staging) -> None:
        self._backend = backend
        self._staging = staging
        self._size = size
        self._state = state
        self._free = deque(HostSlot() for _ in range(count))
        self._copying: deque[HostSlot] = deque()  # in the order in which the copies will have run
        self.all = tuple(self._free)

    def acquire(self) -> HostSlot | None:
        """Return a slot to write into, or None when none is free. Never waits."""
        self._state.check()
        try:
            slot = self._free.popleft()  # without the lock, since an event loop may ask
        except IndexError:
            return None
        slot.state = HostState.FILLING
        return slot

    def arrays(self, slot: HostSlot, layout: BatchLayout) -> list[NDArray[Any]]:
        """Return the arrays of ``layout`` as views of an acquired slot, made larger when it is too small."""
        assert slot.state is HostState.FILLING, "only a slot that was acquired may be written"
        have = slot.block.nbytes if slot.block else 0
        if layout.nbytes > have:  # or nobody need know, and so writing waits for nobody who submits
            with self._state.lock:
                wanted = self._size.wanted(have, layout.nbytes)
            # The slot is the caller's and its last copy was joined, so the old memory may go at once.
            slot.block = None
            slot.block = self._staging.block(wanted)
        assert slot.block is not None
        return views(slot.block.bytes, layout)

    def give_back(self, slot: HostSlot) -> None:
        """Free an acquired slot that was not submitted; leave any other as it is."""
        with self._state.lock:
            if slot.state is HostState.FILLING:
                self._set_free(slot)

    def copying(self, slot: HostSlot, mark: Mark, begun: Mark | None, arrival: Arrival) -> None:
        """Note that ``mark`` stands behind the copy that reads ``slot``. The caller holds the lock.

        Args:
            begun: Before that copy, where it is timed.
            arrival: To be told that the batch has reached the device.
        """
        slot.mark, slot.begun, slot.arrival = mark, begun, arrival
        self._copying.append(slot)
        self._state.announce()  # join_oldest has something to do

    def join_oldest(self) -> bool:
        """Wait until the oldest copy has run and free its slot; False when there is none to wait for."""
        with self._state.lock:
            self._state.check()
            if not self._copying:
                return False
            slot = self._copying.popleft()
            slot.state = HostState.JOINING
        mark, begun = slot.mark, slot.begun  # the ring may drop them when it is closed meanwhile
        assert mark is not None
        with self._state.fatal():
            self._backend.join(mark)
            copy_s = None if begun is None else self._backend.elapsed_s(begun, mark)
        with self._state.lock:
            self._arrived(slot, copy_s)
            for passed in (mark, begun):
                if passed is not None:
                    self._backend.retire(passed)
            slot.mark = slot.begun = None
            self._set_free(slot)
        return True

    def _arrived(self, slot: HostSlot, copy_s: float | None) -> None:
        if slot.arrival is not None:
            self._state.measures.arrived(slot.arrival, copy_s)
            slot.arrival = None

    def _set_free(self, slot: HostSlot) -> None:
        slot.end_loan()
        slot.state = HostState.FREE
        self._free.append(slot)
        self._state.announce()
