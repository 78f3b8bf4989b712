"""Slots (buffers) for batches in host memory and in device memory, and the sizes of the slots.

A **host slot** is page-locked host memory into which a producer writes a batch. A **device slot** is device memory into
which the device copies the batch. Slots live as long as the stage and cycle through these states::

    host slot     FREE -> FILLING -> COPYING -> JOINING -> FREE
    device slot   FREE -> HOLDING -> READING -> FREE    (copied out)
                  FREE -> HOLDING -> LEASED -> FREE     (used in place)
"""

from __future__ import annotations

from enum import Enum, auto

from aiostream_data.device.backend import DeviceBlock, HostBlock, Mark
from aiostream_data.device.measures import Arrival
from aiostream_data.device.shared_slots import Lent
from aiostream_data.errors import PlanError, SlotTooSmallError


class HostState(Enum):
    """State of a host slot; determines which thread or device may access the slot."""

    FREE = auto()
    FILLING = auto()
    """One producer thread writes a batch into the slot."""
    COPYING = auto()
    """The device copies from the slot until it reaches the slot's mark."""
    JOINING = auto()
    """The device copies from the slot, and one thread waits for the end of the copy."""


class DeviceState(Enum):
    """State of a device slot; determines which thread or stream may access the slot."""

    FREE = auto()
    """The slot is free for a new batch.

    Earlier work may still use the slot until the device reaches the slot's marks.
    """
    HOLDING = auto()
    """The slot contains a batch, or is about to receive a batch from a running copy."""
    READING = auto()
    """One of the consumer's threads is enqueueing the copy that moves the batch out of the slot."""
    LEASED = auto()
    """The consumer's streams may read and write the slot until the lease ends."""


class HostSlot:
    """One host slot. Only the ring changes the attributes of a slot.

    Attributes:
        state: State of the slot, such as FREE.
        block: Memory of the slot; None before the first use of the slot.
        mark: Mark (point in the stream) after the copy that reads the slot, in the states COPYING and JOINING.
        begun: Mark with a timestamp before the copy of the slot; None if copies are not timed.
        arrival: Delivery and arrival times of the batch that is being copied to the device.
        lent: Memory of other processes that the batch's copies also read.
    """

    __slots__ = ("arrival", "begun", "block", "lent", "mark", "state")

    def __init__(self) -> None:
        self.state = HostState.FREE
        self.block: HostBlock | None = None
        self.mark: Mark | None = None
        self.begun: Mark | None = None
        self.arrival: Arrival | None = None
        self.lent: Lent | None = None

    def end_loan(self) -> None:
        """Return the lent memory to the processes that lent it.

        Call this method only after all copies from the lent memory have finished.
        """
        lent, self.lent = self.lent, None
        if lent is not None:
            lent.end()

    @property
    def marks(self) -> list[Mark]:
        """Marks that the device must reach before the slot's memory may be freed."""
        return [] if self.mark is None else [self.mark]

    def drop(self) -> None:
        """Remove the references to the slot's memory and marks."""
        self.block = self.mark = self.begun = self.lent = None


class DeviceSlot:
    """One device slot. Only the ring changes the attributes of a slot.

    Attributes:
        state: State of the slot, such as FREE.
        block: Memory of the slot; None before the first use of the slot.
        marks: Marks (points in streams) that the device must reach before the slot may be overwritten. While the slot
            contains a batch, the list has one mark, after the copy that filled the slot. After the batch was used, the
            list has one mark for each stream that used the batch.
        arrival: Delivery and arrival times of the batch in the slot.
    """

    __slots__ = ("arrival", "block", "marks", "state")

    def __init__(self) -> None:
        self.state = DeviceState.FREE
        self.block: DeviceBlock | None = None
        self.marks: list[Mark] = []
        self.arrival = Arrival()

    @property
    def arrived(self) -> Mark:
        """Mark (point in the stream) after the copy that fills the slot.

        The property ``arrived`` is valid only while the slot contains a batch.
        """
        (mark,) = self.marks
        return mark

    def drop(self) -> None:
        """Remove the references to the slot's memory and marks."""
        self.block, self.marks = None, []


class SlotSize:
    """Size policy for slots. Slots grow rarely, because memory allocations stall the device.

    Attributes:
        regrows: Number of slots that were replaced because a batch did not fit.
    """

    def __init__(self, max_nbytes: int | None = None) -> None:
        """Set a fixed size of ``max_nbytes`` bytes for all slots, or None to choose the size from the batches.

        Raises:
            PlanError: ``max_nbytes`` is below 1.
        """
        if max_nbytes is not None and max_nbytes < 1:
            raise PlanError(f"slot_nbytes must be at least 1, got {max_nbytes}")
        self.max_nbytes = max_nbytes
        self.regrows = 0
        self._largest = 0

    def check(self, need: int) -> None:
        """Check that a slot may have a size of ``need`` bytes.

        Raises:
            SlotTooSmallError: ``need`` exceeds ``max_nbytes``.
        """
        if self.max_nbytes is not None and need > self.max_nbytes:
            raise SlotTooSmallError(
                f"a batch of {need} bytes does not fit into device slots of {self.max_nbytes} bytes. "
                "Raise slot_nbytes, or make batches smaller"
            )

    def wanted(self, have: int, need: int) -> int:
        """Return the new size of a slot that has ``have`` bytes (0: not allocated) and must hold ``need`` bytes.

        A slot grows by at least half of its size, so that slow growth of the batches causes few reallocations.
        """
        self.check(need)
        if need <= have:
            return have
        if have:
            self.regrows += 1
            need = max(need, have + have // 2)
        self._largest = self.max_nbytes or max(need, self._largest)
        return self._largest
