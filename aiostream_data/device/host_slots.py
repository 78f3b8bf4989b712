"""The host slots of a ring.

A producer fills a slot, the device copies the batch from the slot, and then the slot is reused.
"""

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
    """Collection of all host slots of a ring. Any thread may call the methods of ``HostSlots``."""

    def __init__(self, backend: DeviceBackend, count: int, size: SlotSize, state: RingState, staging: Staging) -> None:
        self._backend = backend
        self._staging = staging
        self._size = size
        self._state = state
        self._free = deque(HostSlot() for _ in range(count))
        self._copying: deque[HostSlot] = deque()  # in the order of their copies
        self.all = tuple(self._free)

    def acquire(self) -> HostSlot | None:
        """Return a host slot for writing a batch, or None if no slot is free. Never waits."""
        self._state.check()
        try:
            slot = self._free.popleft()  # without the lock, because an event loop may call this
        except IndexError:
            return None
        slot.state = HostState.FILLING
        return slot

    def arrays(self, slot: HostSlot, layout: BatchLayout) -> list[NDArray[Any]]:
        """Return the arrays of ``layout`` as views of an acquired slot.

        The method enlarges the slot if it is too small for the layout.
        """
        assert slot.state is HostState.FILLING, "only a slot that was acquired may be written"
        have = slot.block.nbytes if slot.block else 0
        if layout.nbytes > have:  # otherwise skip the lock, so that writers never wait for submitters
            with self._state.lock:
                wanted = self._size.wanted(have, layout.nbytes)
            # The caller owns the slot and its last copy was joined, so the old memory can be freed at once.
            slot.block = None
            slot.block = self._staging.block(wanted)
        assert slot.block is not None
        return views(slot.block.bytes, layout)

    def give_back(self, slot: HostSlot) -> None:
        """Free an acquired slot that was not submitted. A slot in any other state is not changed."""
        with self._state.lock:
            if slot.state is HostState.FILLING:
                self._set_free(slot)

    def copying(self, slot: HostSlot, mark: Mark, begun: Mark | None, arrival: Arrival) -> None:
        """Record ``mark``, a point in the device stream after the copy that reads ``slot``.

        The caller must hold the ring's lock.

        Args:
            begun: Mark with a timestamp before the copy of the slot; None if copies are not timed.
            arrival: Object that records when the batch reaches the device.
        """
        slot.mark, slot.begun, slot.arrival = mark, begun, arrival
        self._copying.append(slot)
        self._state.announce()  # wakes threads that wait to call join_oldest

    def join_oldest(self) -> bool:
        """Wait until the oldest copy to the device has finished, and free its host slot.

        Return False if no copy to the device is pending.
        """
        with self._state.lock:
            self._state.check()
            if not self._copying:
                return False
            slot = self._copying.popleft()
            slot.state = HostState.JOINING
        mark, begun = slot.mark, slot.begun  # closing the ring may clear these attributes
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
