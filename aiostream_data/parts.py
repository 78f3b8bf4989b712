"""An array still in pieces, to be written into memory that somebody lends."""

from __future__ import annotations

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
    def dtype(self) -> np.dtype[Any]:
        return self.pieces[0].dtype

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)

    def write_to(self, memory: NDArray[np.uint8]) -> None:
        """Write the bytes of the whole array, in C order, to memory of that size; releases the GIL."""
        self.write_into(np.ndarray(self.shape, self.dtype, memory.data))

    def write_into(self, target: NDArray[Any]) -> None:
        """Write the whole array into ``target`` of the same shape and dtype; releases the GIL."""
        start = 0
        for piece in self.pieces:
            np.copyto(target[start : start + len(piece)], piece, casting="no")
            start += len(piece)
