"""The device slots of a ring: written by a copy, read by one consumer, written again."""

from __future__ import annotations

from collections import deque
from typing import Any

from aiostream_data.device.backend import DeviceBackend, DeviceBlock
from aiostream_data.device.layout import BatchLayout
from aiostream_data.device.ring_state import RingState
from aiostream_data.device.slots import DeviceSlot, DeviceState, SlotSize
from aiostream_data.errors import BatchReleasedError, DeviceMemoryError


class DeviceBatch:
    """A batch in a device slot, or on its way there. Its one owner takes it out or discards it.

    Attributes:
        layout: Of the arrays in the slot.
    """

    __slots__ = ("_kept", "_slot", "_slots", "layout")

    def __init__(self, slots: DeviceSlots, slot: DeviceSlot, layout: BatchLayout, kept: list[Any]) -> None:
        self.layout = layout
        self._slots = slots
        self._slot: DeviceSlot | None = slot
        self._kept = kept

    @property
    def nbytes(self) -> int:
        """Bytes copied for the batch, padding included."""
        return self.layout.nbytes

    def materialise(self) -> Any:
        """Take the batch out and give its slot back, in the consumer's thread, without waiting.

        The copy is enqueued on the calling thread's current stream; what the caller enqueues there
        next finds it done. On ``cpu`` it is done at once.

        Returns:
            The batch's structure, of arrays on the device that the caller owns. They are views of one
            allocation: keeping one leaf keeps the memory of all.

        Raises:
            BatchReleasedError: It was taken out or discarded before.
            DeviceMemoryError: The device has no room for the copy; the batch is still there.
            DeviceError, LoaderClosedError, ForkedPipelineError: The ring cannot be used any more.
        """
        arrays = self._slots.take_out(self)
        kept, self._kept = self._kept, []
        return self.layout.rebuild(arrays, kept)

    def discard(self) -> None:
        """Give the slot back without looking at the batch. Does nothing when it is gone, or the ring is."""
        self._slots.discard(self)


class DeviceSlots:
    """M device slots. Methods may be called from any thread.

    Attributes:
        all: The slots; fewer than at first when the device had no room for all of them.
    """

    def __init__(self, backend: DeviceBackend, count: int, size: SlotSize, state: RingState) -> None:
        self._backend = backend
        self._size = size
        self._state = state
        self.all = [DeviceSlot() for _ in range(count)]
        self._free = deque(self.all)

    def take(self, nbytes: int) -> DeviceSlot | None:
        """Return a free slot of at least this size, or None when none is free. The caller holds the lock.

        Raises:
            DeviceMemoryError: The device has no room even for one slot.
        """
        while self._free:
            slot = self._free[0]  # the longest free, so the likeliest to be idle
            try:
                self._grow(slot, nbytes)
            except DeviceMemoryError as error:
                if len(self.all) == 1:
                    raise DeviceMemoryError(f"not even one device slot fits: {error}") from error
                self.all.remove(slot)  # go on with fewer slots rather than not at all
                self._free.popleft()
                continue
            return self._free.popleft()
        return None

    def _grow(self, slot: DeviceSlot, nbytes: int) -> None:
        have = slot.block.nbytes if slot.block else 0
        wanted = self._size.wanted(have, nbytes)
        if slot.block is not None and wanted == have:
            return
        if slot.mark is not None:
            # The device may still be at work on the old memory. Blocks with the lock held: it is rare.
            with self._state.fatal():
                self._backend.join(slot.mark)
            self._backend.retire(slot.mark)
        slot.block = slot.mark = None
        slot.block = self._block(wanted, nbytes)

    def _block(self, wanted: int, nbytes: int) -> DeviceBlock:
        try:
            return self._backend.device_block(wanted)
        except DeviceMemoryError:
            if wanted == nbytes:
                raise
            return self._backend.device_block(nbytes)  # without the reserve for batches to come

    def take_out(self, batch: DeviceBatch) -> list[Any]:
        """Copy a batch into memory of the consumer's, free its slot, and return the arrays."""
        backend, layout = self._backend, batch.layout
        slot = self._claim(batch)
        assert slot.block is not None
        assert slot.mark is not None
        try:
            own = backend.consumer_block(layout.nbytes)
        except BaseException:
            with self._state.lock:
                slot.state, batch._slot = DeviceState.HOLDING, slot
                self._state.announce()
            raise
        with self._state.fatal():
            stream = backend.current_stream()
            backend.order_after(stream, slot.mark)
            backend.d2d(own, slot.block, layout.nbytes, stream)
            arrived, slot.mark = slot.mark, backend.mark(stream)
        with self._state.lock:
            backend.retire(arrived)
            self._set_free(slot)
        return [backend.view(own, array.offset, array.shape, array.dtype) for array in layout.arrays]

    def discard(self, batch: DeviceBatch) -> None:
        """Free the slot of a batch that nobody reads; it stays behind the mark of its copy."""
        if self._state.forked:
            return
        with self._state.lock:
            slot, batch._slot = batch._slot, None
            if slot is not None:
                self._set_free(slot)

    def _claim(self, batch: DeviceBatch) -> DeviceSlot:
        self._state.check()
        with self._state.lock:
            self._state.check()
            slot, batch._slot = batch._slot, None
            if slot is None:
                raise BatchReleasedError("this device batch was already taken out or discarded")
            slot.state = DeviceState.READING
            return slot

    def _set_free(self, slot: DeviceSlot) -> None:
        slot.state = DeviceState.FREE
        self._free.append(slot)
        self._state.announce()
