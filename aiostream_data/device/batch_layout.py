"""Data classes for the layout of a batch in a slot, and for casting images when a batch leaves its slot.

All offsets are in bytes. :mod:`.layout` computes the array offsets; :mod:`.cast_plan` plans the casts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from aiostream_data.rows.ragged import trusted_ragged
from aiostream_data.rows.structure import Structure

LeafKind = Literal["dense", "ragged", "object"]


@dataclass(frozen=True, slots=True)
class SlotArray:
    """One array in a slot.

    Attributes:
        path: Name of the leaf, for error messages.
        shape, dtype: Shape and dtype of the array, which is C-ordered.
        offset: First byte of the array in the slot, a multiple of :data:`~.backend.ALIGNMENT`.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """Positions of a batch's arrays in a block, and the structure needed to rebuild the batch.

    Attributes:
        structure: Structure of the batch.
        kinds: Kind of each leaf.
        arrays: One entry per dense leaf and two per ragged leaf (values, row splits), in leaf order. Arrays for the
            cast come last.
        nbytes: Bytes a slot must hold; at least 1, so that every batch has a block.
        cast: Plan for casting the images; None if all arrays are copied unchanged.
    """

    structure: Structure
    kinds: tuple[LeafKind, ...]
    arrays: tuple[SlotArray, ...]
    nbytes: int
    cast: CastPlan | None = None

    @property
    def outside(self) -> BatchLayout:
        """Layout of the consumer's block, into which the batch is copied or cast."""
        return self if self.cast is None else self.cast.target

    def rebuild(self, arrays: Iterable[Any], kept: Iterable[Any]) -> Any:
        """Rebuild the batch from ``arrays`` (in layout order) and the object leaves that :func:`take_apart` returned as
        ``kept``."""
        arrays, kept = iter(arrays), iter(kept)
        leaves: list[Any] = []
        for kind in self.kinds:
            if kind == "dense":
                leaves.append(next(arrays))
            elif kind == "ragged":
                leaves.append(trusted_ragged(next(arrays), next(arrays)))
            else:
                leaves.append(next(kept))
        return self.structure.unflatten(leaves)


@dataclass(frozen=True, slots=True)
class Copy:
    """Consecutive bytes of a slot that are copied unchanged to the consumer's block.

    Attributes:
        source: First byte in the slot.
        target: First byte in the consumer's block.
        nbytes: Number of bytes.
    """

    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Cast:
    """Images that are cast while they are copied out of the slot.

    Attributes:
        images: uint8 (rows, height, width, channels), in the slot.
        factors: float32 (2, channels), in the slot: the gain and the bias of each channel.
        places: int32 (rows, 3), in the slot: the top line and left column of the crop, and 1 if the image is mirrored.
        target: The result, in the consumer's block.
        planar: True if the result is (rows, channels, height, width), False if it is (rows, height, width, channels).
    """

    images: SlotArray
    factors: SlotArray
    places: SlotArray
    target: SlotArray
    planar: bool

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the result."""
        shape = self.target.shape
        return (shape[2], shape[3]) if self.planar else (shape[1], shape[2])


@dataclass(frozen=True, slots=True)
class CastPlan:
    """Copies and casts that move one batch out of its slot.

    Attributes:
        copies, casts: The copies and casts, in any order, because they write to disjoint bytes.
        target: Layout of the consumer's block.
    """

    copies: tuple[Copy, ...]
    casts: tuple[Cast, ...]
    target: BatchLayout

    def alone(self, number: int) -> CastPlan:
        """Return the plan that copies or casts only array ``number``, to the start of a separate block."""
        array = self.target.arrays[number]
        target = replace(self.target, arrays=(replace(array, offset=0),), nbytes=max(array.nbytes, 1))
        casts = tuple(replace(cast, target=target.arrays[0]) for cast in self.casts if cast.target is array)
        within = (copy for copy in self.copies if 0 <= array.offset - copy.target < copy.nbytes)
        copies = (Copy(copy.source + array.offset - copy.target, 0, array.nbytes) for copy in within)
        return CastPlan(() if casts or not array.nbytes else tuple(copies), casts, target)
