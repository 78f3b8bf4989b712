"""The host slots of a ring: lent to producers, read by the device, joined, lent again."""

from __future__ import annotations

from collections import deque
from typing import Any

from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBackend, Mark
from aiostream_data.device.layout import BatchLayout, views
from aiostream_data.device.ring_state import RingState
from aiostream_data.device.slots import HostSlot, HostState, SlotSize


class HostSlots:
    """K host slots. Methods may be called from any thread."""

    def __init__(self, backend: DeviceBackend, count: int, size: SlotSize, state: RingState) -> None:
        self._backend = backend
        self._size = size
        self._state = state
        self._free = deque(HostSlot() for _ in range(count))
        self._copying: deque[HostSlot] = deque()  # in the order in which the copies will have run
        self.all = tuple(self._free)

    def acquire(self) -> HostSlot | None:
        """Return a slot to write into, or None when none is free. Never waits."""
        with self._state.lock:
            self._state.check()
            if not self._free:
                return None
            slot = self._free.popleft()
            slot.state = HostState.FILLING
            return slot

    def arrays(self, slot: HostSlot, layout: BatchLayout) -> list[NDArray[Any]]:
        """Return the arrays of ``layout`` as views of an acquired slot, made larger when it is too small."""
        assert slot.state is HostState.FILLING, "only a slot that was acquired may be written"
        have = slot.block.nbytes if slot.block else 0
        with self._state.lock:
            wanted = self._size.wanted(have, layout.nbytes)
        if slot.block is None or wanted > have:
            # The slot is the caller's and its last copy was joined, so the old memory may go at once.
            slot.block = None
            slot.block = self._backend.host_block(wanted)
        return views(slot.block.bytes, layout)

    def give_back(self, slot: HostSlot) -> None:
        """Free an acquired slot that was not submitted; leave any other as it is."""
        with self._state.lock:
            if slot.state is HostState.FILLING:
                self._set_free(slot)

    def copying(self, slot: HostSlot, mark: Mark) -> None:
        """Note that ``mark`` stands behind the copy that reads ``slot``. The caller holds the lock."""
        slot.mark = mark
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
        assert slot.mark is not None
        with self._state.fatal():
            self._backend.join(slot.mark)
        with self._state.lock:
            self._backend.retire(slot.mark)
            slot.mark = None
            self._set_free(slot)
        return True

    def _set_free(self, slot: HostSlot) -> None:
        slot.state = HostState.FREE
        self._free.append(slot)
        self._state.announce()
