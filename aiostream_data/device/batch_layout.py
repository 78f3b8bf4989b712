"""Data classes for the positions of a batch's arrays in a memory slot, and for converting (casting) images.

All offsets are in bytes. The module :mod:`.layout` computes the offsets, and :mod:`.cast_plan` plans the image casts.
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
        offset: Byte offset of the array in the slot; a multiple of :data:`~.backend.ALIGNMENT`.
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
        structure: Nested structure of the batch's leaves.
        kinds: Kind of each leaf: "dense", "ragged" or "object".
        arrays: One entry per dense leaf and two entries per ragged leaf (values, row splits), in leaf order. The
            parameter arrays of the image cast come last.
        nbytes: Size in bytes that the batch needs in a slot; at least 1, even for a batch without arrays.
        cast: Plan for casting (converting) the images; None if all arrays are copied unchanged.
    """

    structure: Structure
    kinds: tuple[LeafKind, ...]
    arrays: tuple[SlotArray, ...]
    nbytes: int
    cast: CastPlan | None = None

    @property
    def outside(self) -> BatchLayout:
        """Layout of the consumer's memory block, which receives the copied or cast batch."""
        return self if self.cast is None else self.cast.target

    def rebuild(self, arrays: Iterable[Any], kept: Iterable[Any]) -> Any:
        """Rebuild a batch from its arrays in layout order and from the leaves that are not arrays (``kept``)."""
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
    """Contiguous range of bytes in a slot that is copied unchanged to the consumer's memory block.

    Attributes:
        source: Byte offset in the slot at which the copy starts reading.
        target: Byte offset in the consumer's block at which the copy starts writing.
        nbytes: Number of bytes.
    """

    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Cast:
    """Images that are cast (converted) while they are copied from the slot to the consumer's memory block.

    Attributes:
        images: Input images in the slot, as a uint8 array of shape (rows, height, width, channels).
        factors: float32 array of shape (2, channels) in the slot, with the gain and the bias of each channel.
        places: int32 array of shape (rows, 3) in the slot. The columns are the crop's top line, the crop's left column,
            and the mirror flag (0 or 1).
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
    """Copies and image casts (conversions) that transfer one batch from its slot to the consumer.

    Attributes:
        copies, casts: Steps of the transfer. The steps write to different bytes, so any order of the steps is possible.
        target: Layout of the batch in the consumer's memory block.
    """

    copies: tuple[Copy, ...]
    casts: tuple[Cast, ...]
    target: BatchLayout

    def alone(self, number: int) -> CastPlan:
        """Return a plan that transfers only array ``number``, to the start of a separate memory block."""
        array = self.target.arrays[number]
        target = replace(self.target, arrays=(replace(array, offset=0),), nbytes=max(array.nbytes, 1))
        casts = tuple(replace(cast, target=target.arrays[0]) for cast in self.casts if cast.target is array)
        within = (copy for copy in self.copies if 0 <= array.offset - copy.target < copy.nbytes)
        copies = (Copy(copy.source + array.offset - copy.target, 0, array.nbytes) for copy in within)
        return CastPlan(() if casts or not array.nbytes else tuple(copies), casts, target)
