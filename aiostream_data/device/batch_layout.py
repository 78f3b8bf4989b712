"""Data classes for the layout of a batch in a memory slot, and for converting (casting) images on copy from the slot.

All offsets are in bytes. :mod:`.layout` computes the offsets of arrays in a slot; :mod:`.cast_plan` plans the casts
(image conversions).
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
    """Description of one array in a memory slot.

    Attributes:
        path: Name of the leaf to which the array belongs, for error messages.
        shape, dtype: Shape and dtype of the array. The array is C-ordered.
        offset: Offset in bytes of the array in the slot, a multiple of :data:`~.backend.ALIGNMENT`.
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
    """Positions of a batch's arrays in a memory block, and the structure for rebuilding the batch.

    Attributes:
        structure: Structure of the batch.
        kinds: Kind of each leaf: "dense", "ragged" or "object".
        arrays: One entry per dense leaf and two entries per ragged leaf (values, row splits), in leaf order. The arrays
            for the image cast come last.
        nbytes: Size in bytes that a slot must have for the batch; at least 1, so that every batch has a memory block.
        cast: Plan for casting (converting) the images; None if all arrays are copied unchanged.
    """

    structure: Structure
    kinds: tuple[LeafKind, ...]
    arrays: tuple[SlotArray, ...]
    nbytes: int
    cast: CastPlan | None = None

    @property
    def outside(self) -> BatchLayout:
        """Layout of the consumer's memory block. The batch is copied or cast into this block."""
        return self if self.cast is None else self.cast.target

    def rebuild(self, arrays: Iterable[Any], kept: Iterable[Any]) -> Any:
        """Rebuild a batch from ``arrays`` (in layout order) and ``kept`` (object leaves of :func:`take_apart`)."""
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
    """Consecutive bytes of a slot that are copied unchanged to the consumer's memory block.

    Attributes:
        source: Offset in bytes of the copied bytes in the slot.
        target: Offset in bytes of the copied bytes in the consumer's block.
        nbytes: Number of bytes.
    """

    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Cast:
    """Images that are cast (converted) while they are copied from the slot to the consumer's memory block.

    Attributes:
        images: Input images in the slot: uint8 array of shape (rows, height, width, channels).
        factors: float32 array of shape (2, channels) in the slot, with the gain and the bias of each channel.
        places: int32 array of shape (rows, 3) in the slot: top line of the crop, left column of the crop, and 1 if the
            image is mirrored.
        target: Array of the converted images, in the consumer's memory block.
        planar: True if the result has the shape (rows, channels, height, width), False for (rows, height, width,
            channels).
    """

    images: SlotArray
    factors: SlotArray
    places: SlotArray
    target: SlotArray
    planar: bool

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the converted images."""
        shape = self.target.shape
        return (shape[2], shape[3]) if self.planar else (shape[1], shape[2])


@dataclass(frozen=True, slots=True)
class CastPlan:
    """Copies and casts (image conversions) that transfer one batch from its slot to the consumer.

    Attributes:
        copies, casts: The copies and the casts. They write to disjoint bytes, so they can run in any order.
        target: Layout of the batch in the consumer's memory block.
    """

    copies: tuple[Copy, ...]
    casts: tuple[Cast, ...]
    target: BatchLayout

    def alone(self, number: int) -> CastPlan:
        """Return a plan that copies or casts only array ``number``, to the start of a separate memory block."""
        array = self.target.arrays[number]
        target = replace(self.target, arrays=(replace(array, offset=0),), nbytes=max(array.nbytes, 1))
        casts = tuple(replace(cast, target=target.arrays[0]) for cast in self.casts if cast.target is array)
        within = (copy for copy in self.copies if 0 <= array.offset - copy.target < copy.nbytes)
        copies = (Copy(copy.source + array.offset - copy.target, 0, array.nbytes) for copy in within)
        return CastPlan(() if casts or not array.nbytes else tuple(copies), casts, target)
