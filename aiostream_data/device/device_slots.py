"""The device slots of a ring: written by a copy, read by one consumer, written again."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from aiostream_data.device.backend import DeviceBackend, DeviceBlock, NativeArray, StreamRef
from aiostream_data.device.batch_layout import BatchLayout
from aiostream_data.device.handover import ExportedArray, HandOver, OwnArray
from aiostream_data.device.leases import Lease, Leases
from aiostream_data.device.receivers import FrameworkReceiver, Receivers
from aiostream_data.device.ring_state import RingState
from aiostream_data.device.slot_room import SlotRoom
from aiostream_data.device.slots import DeviceSlot, DeviceState, SlotSize
from aiostream_data.errors import BatchReleasedError, DeviceError, DeviceMemoryError, DeviceTargetError
from aiostream_data.interrupts import interrupts_after


class HeldBatch(Protocol):
    """A batch in a slot, or on its way there.

    Attributes:
        layout: Of its arrays.
    """

    layout: BatchLayout
    _slot: DeviceSlot | None


class DeviceSlots:
    """M device slots. Methods may be called from any thread.

    Attributes:
        all: The slots; fewer than at first when the device had no room for all of them.
        hand_over: The terms on which consumers get batches.
        receivers: The libraries that they get them in.
        leases: Of the slots that consumers have.
    """

    def __init__(
        self,
        backend: DeviceBackend,
        count: int,
        size: SlotSize,
        state: RingState,
        hand_over: HandOver | None = None,
    ) -> None:
        self._backend = backend
        self.hand_over = hand_over or HandOver()
        self.receivers = Receivers(backend, self.hand_over.framework)
        self.leases = Leases(backend, state, self._set_free)
        self._size = size
        self._state = state
        self._room = SlotRoom(backend.device, count)
        self.all = [DeviceSlot() for _ in range(count)]
        self._free = deque(self.all)

    def take(self, nbytes: int) -> DeviceSlot | None:
        """Return a free slot of at least this size, or None when none is free. The caller holds the lock.

        Raises:
            DeviceMemoryError: The device has no room for so many slots as are needed at least.
        """
        while self._free:
            slot = self._free[0]  # the longest free, so the likeliest to be idle
            try:
                self._grow(slot, nbytes)
            except DeviceMemoryError as error:
                self._room.give_up_one(self.all, nbytes, error)
                self.all.remove(slot)
                self._free.popleft()
                continue
            return self._free.popleft()
        return None

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._backend.device

    @property
    def any_free(self) -> bool:
        """True when a slot is free, or will be as soon as leaked leases were ended."""
        return bool(self._free) or self.leases.any_leaked

    @property
    def all_held(self) -> bool:
        """True when consumers have every slot, so that no batch can come until they give one back."""
        return self.leases.held(self.all) == len(self.all)

    def _grow(self, slot: DeviceSlot, nbytes: int) -> None:
        have = slot.block.nbytes if slot.block else 0
        wanted = self._size.wanted(have, nbytes)
        if slot.block is not None and wanted == have:
            return
        for mark in slot.marks:
            # The device may still be at work on the old memory. Blocks with the lock held: it is rare.
            with self._state.fatal():
                self._backend.join(mark)
            self._backend.retire(mark)
        slot.drop()
        slot.block = self._block(wanted, nbytes)

    def _block(self, wanted: int, nbytes: int) -> DeviceBlock:
        try:
            return self._backend.device_block(wanted)
        except DeviceMemoryError:
            if wanted == nbytes:
                raise
            return self._backend.device_block(nbytes)  # without the reserve for batches to come

    @interrupts_after()
    def take_out(self, batch: HeldBatch, receiver: FrameworkReceiver) -> list[Any]:
        """Copy a batch into memory of the consumer's, free its slot, and return the arrays."""
        backend, layout = self._backend, batch.layout
        slot = self._claim(batch, DeviceState.READING)
        assert slot.block is not None
        try:
            stream = receiver.current_stream()
            self.leases.check_stream(stream)
            own, memory = receiver.memory(layout.outside.nbytes)
            arrays = [receiver.view(memory, array) for array in layout.outside.arrays]
        except BaseException as error:
            with self._state.lock:
                slot.state, batch._slot = DeviceState.HOLDING, slot
                if isinstance(error, DeviceError):
                    self._state.fail(
                        error
                    )  # mostly a kernel of the consumer's own, of which this is the first call to hear
                self._state.announce()
            raise
        arrived = slot.arrived
        with self._state.fatal():
            backend.order_after(stream, arrived)
            if layout.cast is None:
                backend.d2d(own, slot.block, layout.nbytes, stream)
            else:
                backend.cast(own, slot.block, layout.cast, stream)
            slot.marks = [backend.mark(stream)]
        with self._state.lock:
            self._state.measures.launches += 1
            backend.retire(arrived)
            self._set_free(slot)
        return arrays

    @interrupts_after()
    def lend(self, batch: HeldBatch) -> tuple[Lease, DeviceBlock]:
        """Begin the lease of a batch's slot; see :meth:`~.leases.Leases.lend`."""
        self._state.check()
        with self._state.lock:
            return self.leases.lend(self._claim(batch, DeviceState.LEASED))

    def views(self, block: DeviceBlock, layout: BatchLayout) -> list[NativeArray]:
        """Return the arrays of a layout as views of a block."""
        return [self._backend.view(block, array.offset, array.shape, array.dtype) for array in layout.arrays]

    def exported(self, lease: Lease, native: NativeArray, *, copied: bool = False) -> ExportedArray:
        """Return an array over a lent slot as other libraries import it; ``copied`` as for :class:`ExportedArray`."""
        return ExportedArray(native, lease, self.leases, self._backend, copied=copied)

    def owned(self, arrays: list[NativeArray]) -> list[OwnArray]:
        """Return arrays that :meth:`take_out` has just begun to fill in this thread as other libraries import them."""
        stream = self._backend.current_stream()
        return [OwnArray(array, self._backend, stream) for array in arrays]

    def check_aligned(self, layout: BatchLayout, blocks: list[DeviceBlock]) -> None:
        """Refuse targets of a cast that begin in the middle of a number: a GPU cannot write there.

        Raises:
            DeviceTargetError: One does.
        """
        for array, block in zip(layout.outside.arrays, blocks, strict=True):
            if layout.cast is not None and self._backend.address(block) % array.dtype.itemsize:
                raise DeviceTargetError(
                    array.path, f"it begins at an address that is no multiple of {array.dtype.itemsize} bytes: copy it"
                )

    @interrupts_after()
    def copy_into(
        self, lease: Lease, source: DeviceBlock, layout: BatchLayout, blocks: list[DeviceBlock], stream: StreamRef
    ) -> None:
        """Copy every array of a leased batch from its slot into a block of its own, and end the lease."""
        with self.leases.using(lease, stream):
            for number, (array, block) in enumerate(zip(layout.outside.arrays, blocks, strict=True)):
                if not array.nbytes:
                    continue
                if layout.cast is None:
                    self._backend.d2d(block, source, array.nbytes, stream, array.offset)
                else:
                    self._backend.cast(block, source, layout.cast.alone(number), stream)
                self._state.measures.launches += 1
        self.leases.end(lease)

    @interrupts_after()
    def discard(self, batch: HeldBatch) -> None:
        """Free the slot of a batch that nobody reads; it stays behind the mark of its copy."""
        if self._state.forked:
            return
        with self._state.lock:
            slot, batch._slot = batch._slot, None
            if slot is not None:
                self._set_free(slot)

    def _claim(self, batch: HeldBatch, state: DeviceState) -> DeviceSlot:
        self._state.check()
        with self._state.lock:
            self._state.check()
            slot, batch._slot = batch._slot, None
            if slot is None:
                raise BatchReleasedError("this device batch was already taken out, lent or discarded")
            slot.state = state
            self._state.measures.asked(slot.arrival)
            return slot

    def _set_free(self, slot: DeviceSlot) -> None:
        slot.state = DeviceState.FREE
        self._free.append(slot)
        self._state.announce()
