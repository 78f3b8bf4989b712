"""How the arrays of a batch lie in a slot, and how images are cast on their way out of it: plain data.

Offsets are in bytes. :mod:`.layout` places arrays, :mod:`.cast_plan` decides casts.
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
        path: Name of the leaf, for messages.
        shape, dtype: Of the array, C-ordered.
        offset: First byte in the slot; a multiple of :data:`~.backend.ALIGNMENT`.
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
    """Where the arrays of a batch stand, and how to put the batch together again.

    Attributes:
        structure: Of the batch.
        kinds: One per leaf.
        arrays: One per dense leaf, two per ragged leaf (values, row splits), in leaf order; behind them what a cast
            needs beside the batch.
        nbytes: What a slot must hold; at least 1, so that every batch has a block.
        cast: How images leave the slot; None when everything leaves it as it is.
    """

    structure: Structure
    kinds: tuple[LeafKind, ...]
    arrays: tuple[SlotArray, ...]
    nbytes: int
    cast: CastPlan | None = None

    @property
    def outside(self) -> BatchLayout:
        """The layout of the block that the batch is taken out into."""
        return self if self.cast is None else self.cast.target

    def rebuild(self, arrays: Iterable[Any], kept: Iterable[Any]) -> Any:
        """Return the batch made of ``arrays`` (in layout order) and of what :func:`take_apart` kept."""
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
    """Bytes that are taken out as they are.

    Attributes:
        source: First byte in the slot.
        target: First byte in the consumer's block.
        nbytes: How many.
    """

    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Cast:
    """Images that are cast while they are taken out.

    Attributes:
        images: uint8 (rows, height, width, channels), in the slot.
        factors: float32 (2, channels), in the slot: what pixels are multiplied with, and what is added then.
        places: int32 (rows, 3), in the slot: first line and column that are wanted, and whether they are mirrored.
        target: The result, in the consumer's block.
        planar: The result is (rows, channels, height, width), and not (rows, height, width, channels).
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
    """How one batch is taken out of its slot.

    Attributes:
        copies, casts: What is done; they write to different bytes, so their order does not matter.
        target: Layout of the consumer's block.
    """

    copies: tuple[Copy, ...]
    casts: tuple[Cast, ...]
    target: BatchLayout

    def alone(self, number: int) -> CastPlan:
        """Return the plan of taking out one array only, to the beginning of a block of its own."""
        array = self.target.arrays[number]
        target = replace(self.target, arrays=(replace(array, offset=0),), nbytes=max(array.nbytes, 1))
        casts = tuple(replace(cast, target=target.arrays[0]) for cast in self.casts if cast.target is array)
        within = (copy for copy in self.copies if 0 <= array.offset - copy.target < copy.nbytes)
        copies = (Copy(copy.source + array.offset - copy.target, 0, array.nbytes) for copy in within)
        return CastPlan(() if casts or not array.nbytes else tuple(copies), casts, target)
