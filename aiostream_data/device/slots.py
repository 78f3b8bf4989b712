"""The two kinds of slot through which batches reach a device, and how large they are made.

A **host slot** is page-locked memory that a producer writes a batch into; a **device slot** is memory
on the device that the copy goes to. Both live as long as the stage, and go round::

    host slot     FREE -> FILLING -> COPYING -> JOINING -> FREE
    device slot   FREE -> HOLDING -> READING -> FREE    (copied out)
                  FREE -> HOLDING -> LEASED -> FREE     (used where it is)
"""

from __future__ import annotations

from enum import Enum, auto

from aiostream_data.device.backend import DeviceBlock, HostBlock, Mark
from aiostream_data.device.measures import Arrival
from aiostream_data.device.shared_slots import Lent
from aiostream_data.errors import PlanError, SlotTooSmallError


class HostState(Enum):
    """Who may touch a host slot."""

    FREE = auto()
    FILLING = auto()
    """One producer writes into it."""
    COPYING = auto()
    """The device reads from it, until its mark."""
    JOINING = auto()
    """As COPYING, and one thread waits for the mark."""


class DeviceState(Enum):
    """Who may touch a device slot."""

    FREE = auto()
    """Nobody new; the device may still be at work on it, until its mark."""
    HOLDING = auto()
    """It holds a batch, or will once its mark has passed."""
    READING = auto()
    """One consumer's thread is enqueueing the copy that takes the batch out."""
    LEASED = auto()
    """The consumer's streams may read and write it, until the lease is given back."""


class HostSlot:
    """One host slot. The ring alone changes it.

    Attributes:
        state: Who may touch it.
        block: Its memory; None until first used.
        mark: Behind the copy that reads the slot, while it is COPYING or JOINING.
        begun: Before that copy, where copies are timed.
        arrival: Of the batch that is copied.
        lent: Memory of other processes that the batch's copies read beside the slot's own.
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
        """Release what was lent: no copy reads it any more, or ever will."""
        lent, self.lent = self.lent, None
        if lent is not None:
            lent.end()

    @property
    def marks(self) -> list[Mark]:
        """What has to be passed before its memory may go."""
        return [] if self.mark is None else [self.mark]

    def drop(self) -> None:
        """Release memory and marks."""
        self.block = self.mark = self.begun = self.lent = None


class DeviceSlot:
    """One device slot. The ring alone changes it.

    Attributes:
        state: Who may touch it.
        block: Its memory; None until first used.
        marks: What has to be passed before the slot may be written: while it holds a batch, the one behind the
            copy that brings it; afterwards one for every stream on which it was used.
        arrival: Of the batch that it holds.
    """

    __slots__ = ("arrival", "block", "marks", "state")

    def __init__(self) -> None:
        self.state = DeviceState.FREE
        self.block: DeviceBlock | None = None
        self.marks: list[Mark] = []
        self.arrival = Arrival()

    @property
    def arrived(self) -> Mark:
        """The mark behind the copy that brings its batch. Only while it holds one."""
        (mark,) = self.marks
        return mark

    def drop(self) -> None:
        """Release memory and marks."""
        self.block, self.marks = None, []


class SlotSize:
    """Decides how large slots are made. Slots grow seldom: allocating stalls a device.

    Attributes:
        regrows: How often a slot was too small for a batch and was replaced by a larger one.
    """

    def __init__(self, max_nbytes: int | None = None) -> None:
        """Make all slots of ``max_nbytes`` bytes, or of what the batches turn out to need.

        Raises:
            PlanError: ``max_nbytes`` is below 1.
        """
        if max_nbytes is not None and max_nbytes < 1:
            raise PlanError(f"slot_nbytes must be at least 1, got {max_nbytes}")
        self.max_nbytes = max_nbytes
        self.regrows = 0
        self._largest = 0

    def check(self, need: int) -> None:
        """Raise when no slot may hold ``need`` bytes.

        Raises:
            SlotTooSmallError: As said.
        """
        if self.max_nbytes is not None and need > self.max_nbytes:
            raise SlotTooSmallError(
                f"a batch of {need} bytes does not fit into device slots of {self.max_nbytes} bytes: "
                "raise slot_nbytes, or make batches smaller"
            )

    def wanted(self, have: int, need: int) -> int:
        """Return the size that a slot of ``have`` bytes (0: not made yet) should have for ``need`` bytes.

        A slot that must grow grows by half at least, so that slowly growing batches cost few regrows.
        """
        self.check(need)
        if need <= have:
            return have
        if have:
            self.regrows += 1
            need = max(need, have + have // 2)
        self._largest = self.max_nbytes or max(need, self._largest)
        return self._largest
