"""Arrays stored in pieces, which are copied directly to memory provided by the consumer."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WIDEST: Final = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""Maximum size in bytes of a number of each kind that devices store."""


def may_be_in_parts(dtype: np.dtype[Any], *, for_device: bool) -> bool:
    """Return True if arrays of a dtype may be stored as :class:`Parts`.

    Args:
        for_device: True if a device puts the parts together. It stores only numbers, so other arrays would arrive in
            parts. False if another process puts them together.
    """
    if not for_device:
        return not dtype.hasobject
    return dtype.isnative and dtype.itemsize <= WIDEST.get(dtype.kind, 0)


class Parts:
    """An array stored as pieces that are concatenated along the first axis.

    Batches for a device or another process consist of Parts, so that each row is copied only once, to its destination.
    The pieces are array views, which keep the viewed memory alive.

    Attributes:
        pieces: One or more arrays with equal dtype and row shape.
    """

    # Not a dataclass: dataclasses count as structure, but Parts is a leaf.
    __slots__ = ("pieces",)

    def __init__(self, pieces: tuple[NDArray[Any], ...]) -> None:
        self.pieces = pieces

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(map(len, self.pieces)), *self.pieces[0].shape[1:])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.pieces[0].dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def write_to(self, memory: NDArray[np.uint8]) -> None:
        """Write the bytes of the array, in C order, to memory of equal size. Releases the GIL."""
        self.write_into(np.ndarray(self.shape, self.dtype, memory.data))

    def write_into(self, target: NDArray[Any]) -> None:
        """Copy the array to ``target``, which must have an equal shape and dtype. Releases the GIL."""
        start = 0
        for piece in self.pieces:
            np.copyto(target[start : start + len(piece)], piece, casting="no")
            start += len(piece)


class PaddedParts(Parts):
    """An array stored as rows of different shapes. Each row is padded at the end of its axes to a common shape.

    Attributes:
        pieces: One or more rows with equal dtype and number of axes.
        row_shape: Common shape of the rows after padding.
        fill: Padding value.
    """

    __slots__ = ("fill", "row_shape")

    def __init__(self, pieces: tuple[NDArray[Any], ...], row_shape: tuple[int, ...], fill: Any) -> None:
        super().__init__(pieces)
        self.row_shape = row_shape
        self.fill = fill

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.pieces), *self.row_shape)

    def write_into(self, target: NDArray[Any]) -> None:
        for row, piece in zip(target, self.pieces, strict=True):
            inside = tuple(map(slice, piece.shape))
            # If only the first axis needs padding, each value is written only once.
            np.copyto(row[len(piece) :] if piece.shape[1:] == self.row_shape[1:] else row, self.fill)
            np.copyto(row[inside], piece, casting="no")
