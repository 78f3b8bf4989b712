"""An array still in pieces, to be written into memory that somebody lends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Parts:
    """Pieces that make one array when put one after another along the first axis.

    A batch on its way to a device or to another process is made of these, so that its rows are copied once: from
    where they stand to where they are to be. The pieces are views; they keep the memory that they look into alive.

    Attributes:
        pieces: At least one; all of one dtype and row shape.
    """

    # No dataclass: those are structure, and this is a leaf.
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
        """Write the bytes of the whole array, in C order, to memory of that size; releases the GIL."""
        self.write_into(np.ndarray(self.shape, self.dtype, memory.data))

    def write_into(self, target: NDArray[Any]) -> None:
        """Write the whole array into ``target`` of the same shape and dtype; releases the GIL."""
        start = 0
        for piece in self.pieces:
            np.copyto(target[start : start + len(piece)], piece, casting="no")
            start += len(piece)


class PaddedParts(Parts):
    """Rows of differing shape that make one array when each is filled up to one shape.

    Attributes:
        pieces: The rows, at least one; all of one dtype and number of axes.
        row_shape: What every row is filled up to, at its ends.
        fill: What with.
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
            # Where a row is short in its first axis alone, nothing of it is written twice.
            np.copyto(row[len(piece) :] if piece.shape[1:] == self.row_shape[1:] else row, self.fill)
            np.copyto(row[inside], piece, casting="no")
