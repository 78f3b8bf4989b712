"""Plan the copies of a batch to its device slot. This module only computes offsets and never calls a device.

If the host slot (a buffer in host memory) contains the complete batch, the batch needs one copy. Arrays in shared
memory (:mod:`.shared_slots`) are not written into the host slot, because the device can read shared memory directly.
Arrays that are adjacent both in the source memory and in the device slot share one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiostream_data.device.backend import HostBlock
from aiostream_data.device.batch_layout import BatchLayout, SlotArray
from aiostream_data.device.layout import place


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """Location of an array in memory that the device can read directly.

    Attributes:
        block: The memory.
        start: Index of the array's first byte in ``block``.
    """

    block: HostBlock
    start: int


@dataclass(frozen=True, slots=True)
class SlotCopy:
    """One copy of a contiguous range of bytes to a device slot.

    Attributes:
        block: Source memory; None for the batch's host slot.
        start: Index of the first copied byte in the source memory.
        target: Index of the first written byte in the device slot.
        nbytes: Number of bytes to copy; at least 1.
    """

    block: HostBlock | None
    start: int
    target: int
    nbytes: int

    @property
    def stop(self) -> int:
        """Index of the first byte in the device slot after the copied bytes."""
        return self.target + self.nbytes


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Copies that move a batch to its device slot.

    Attributes:
        staged: Layout of the arrays that are first written into the host slot.
        copies: Copies to the device slot, in the order of the arrays.
    """

    staged: BatchLayout
    copies: tuple[SlotCopy, ...]


def whole(layout: BatchLayout) -> tuple[SlotCopy, ...]:
    """Return the single copy for a batch that is stored completely in the host slot."""
    return (SlotCopy(None, 0, 0, layout.nbytes),)


def plan_copies(layout: BatchLayout, places: Sequence[ArrayPlace | None]) -> CopyPlan:
    """Plan the copies of a batch's arrays to the device slot.

    Args:
        places: Location of each array of ``layout.arrays``, or None for an array that is copied through the host slot.
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
    """Append a copy of ``array`` to ``copies``, or extend the last copy if the bytes are adjacent."""
    if not array.nbytes:
        return
    last = copies[-1] if copies else None
    # Consecutive arrays of a slot are separated only by padding, which is copied with them.
    if last is not None and last.block is block and start - last.start == array.offset - last.target:
        copies[-1] = replace(last, nbytes=array.offset + array.nbytes - last.target)
    else:
        copies.append(SlotCopy(block, start, array.offset, array.nbytes))
