"""Decide which bytes are copied to a device slot, and from where: pure arithmetic, no device is touched.

A batch is one copy when all of it was written into a host slot. Where some of its arrays stand in memory that the
device may copy from directly (:mod:`.shared_slots`), these are copied from there, and the host slot holds the rest,
close together. Arrays that stand next to each other on both sides go in one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiostream_data.device.backend import HostBlock
from aiostream_data.device.batch_layout import BatchLayout, SlotArray
from aiostream_data.device.layout import place


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """Where an array stands that the device copies from directly.

    Attributes:
        block: The memory.
        start: First byte of the array in it.
    """

    block: HostBlock
    start: int


@dataclass(frozen=True, slots=True)
class SlotCopy:
    """Consecutive bytes on their way to a device slot.

    Attributes:
        block: Where they stand; None for the host slot of the batch.
        start: First byte there.
        target: First byte in the device slot.
        nbytes: How many; at least 1.
    """

    block: HostBlock | None
    start: int
    target: int
    nbytes: int

    @property
    def stop(self) -> int:
        """Return the byte of the device slot behind the last."""
        return self.target + self.nbytes


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How a batch reaches its device slot.

    Attributes:
        staged: Layout of what is written into the host slot: the arrays without a place of their own.
        copies: To the device slot, in the order of the arrays.
    """

    staged: BatchLayout
    copies: tuple[SlotCopy, ...]


def whole(layout: BatchLayout) -> tuple[SlotCopy, ...]:
    """Return the one copy of a batch of which everything stands in the host slot."""
    return (SlotCopy(None, 0, 0, layout.nbytes),)


def plan_copies(layout: BatchLayout, places: Sequence[ArrayPlace | None]) -> CopyPlan:
    """Return how the arrays of a batch reach the device.

    Args:
        places: One per ``layout.arrays``; None for an array that is to be written into the host slot.
    """
    through_slot = [array for array, own in zip(layout.arrays, places, strict=True) if own is None]
    staged, nbytes = place((array.path, array.shape, array.dtype) for array in through_slot)
    rest = iter(staged)
    copies: list[SlotCopy] = []
    for array, own in zip(layout.arrays, places, strict=True):
        block, start = (None, next(rest).offset) if own is None else (own.block, own.start)
        _add(copies, block, start, array)
    return CopyPlan(replace(layout, arrays=staged, nbytes=nbytes), tuple(copies))


def _add(copies: list[SlotCopy], block: HostBlock | None, start: int, array: SlotArray) -> None:
    """Append the copy of an array, or lengthen the last one where that is the same."""
    if not array.nbytes:
        return
    last = copies[-1] if copies else None
    # Between two arrays that follow one another in a slot stands nothing but padding, which is copied too.
    if last is not None and last.block is block and start - last.start == array.offset - last.target:
        copies[-1] = replace(last, nbytes=array.offset + array.nbytes - last.target)
    else:
        copies.append(SlotCopy(block, start, array.offset, array.nbytes))
