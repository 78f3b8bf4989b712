"""The device slots (buffers in device memory) of a ring.

A copy writes a batch into a slot, one consumer reads the batch, and then the slot is reused.
"""

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
    """A batch in a device slot, or a batch that is being copied to its slot.

    Attributes:
        layout: Layout of the batch's arrays.
    """

    layout: BatchLayout
    _slot: DeviceSlot | None


class DeviceSlots:
    """Collection of all device slots of a ring. Any thread may call the methods of ``DeviceSlots``.

    Attributes:
        all: The slots. A slot that does not fit into device memory is removed from this list.
        hand_over: Settings for delivering batches to consumers.
        receivers: Adapters for the array libraries of the consumers.
        leases: Registry of the leases of the slots that consumers use.
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
        """Return a free slot of at least ``nbytes`` bytes, or None if no slot is free.

        The caller must hold the ring's lock.

        Raises:
            DeviceMemoryError: The device memory is too small for the minimum number of slots.
        """
        while self._free:
            slot = self._free[0]  # free for the longest time, so most likely idle
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
        """True if a device slot is free, or if ending the leaked leases will free a slot."""
        return bool(self._free) or self.leases.any_leaked

    @property
    def all_held(self) -> bool:
        """True if consumers use every device slot, so that no batch can arrive before a slot is released."""
        return self.leases.held(self.all) == len(self.all)

    def _grow(self, slot: DeviceSlot, nbytes: int) -> None:
        have = slot.block.nbytes if slot.block else 0
        wanted = self._size.wanted(have, nbytes)
        if slot.block is not None and wanted == have:
            return
        for mark in slot.marks:
            # The device may still use the old memory. Waiting with the lock held is fine, as slots grow rarely.
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
            return self._backend.device_block(nbytes)  # without the reserve for larger batches

    @interrupts_after()
    def take_out(self, batch: HeldBatch, receiver: FrameworkReceiver) -> list[Any]:
        """Copy a batch into memory of the consumer, free the device slot, and return the arrays."""
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
                    )  # usually a kernel of the consumer failed; this call is the first to report it
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
        """Begin the lease of the batch's device slot; see :meth:`~.leases.Leases.lend`."""
        self._state.check()
        with self._state.lock:
            return self.leases.lend(self._claim(batch, DeviceState.LEASED))

    def views(self, block: DeviceBlock, layout: BatchLayout) -> list[NativeArray]:
        """Return one view of ``block`` for each array of the layout."""
        return [self._backend.view(block, array.offset, array.shape, array.dtype) for array in layout.arrays]

    def exported(self, lease: Lease, native: NativeArray, *, copied: bool = False) -> ExportedArray:
        """Wrap an array that refers to a leased slot, so that other libraries can import it by DLPack."""
        return ExportedArray(native, lease, self.leases, self._backend, copied=copied)

    def owned(self, arrays: list[NativeArray]) -> list[OwnArray]:
        """Wrap arrays from :meth:`take_out` for DLPack. The importer waits for the stream that fills the arrays."""
        stream = self._backend.current_stream()
        return [OwnArray(array, self._backend, stream) for array in arrays]

    def check_aligned(self, layout: BatchLayout, blocks: list[DeviceBlock]) -> None:
        """Check that the target arrays of an image cast are aligned to their item size, as GPUs require.

        Raises:
            DeviceTargetError: A target array is not aligned to its item size.
        """
        for array, block in zip(layout.outside.arrays, blocks, strict=True):
            if layout.cast is not None and self._backend.address(block) % array.dtype.itemsize:
                raise DeviceTargetError(
                    array.path, f"its address is not a multiple of {array.dtype.itemsize} bytes. Pass an aligned copy"
                )

    @interrupts_after()
    def copy_into(
        self, lease: Lease, source: DeviceBlock, layout: BatchLayout, blocks: list[DeviceBlock], stream: StreamRef
    ) -> None:
        """Copy or cast every array of a leased batch into its target array, and end the lease."""
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
        """Free the device slot of an unread batch.

        The slot is reused only after the copy into the slot has finished.
        """
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
                raise BatchReleasedError("this device batch was already copied out, leased or discarded")
            slot.state = state
            self._state.measures.asked(slot.arrival)
            return slot

    def _set_free(self, slot: DeviceSlot) -> None:
        slot.state = DeviceState.FREE
        self._free.append(slot)
        self._state.announce()
