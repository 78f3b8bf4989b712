"""Track the loaded rows of each input of a mixture, and the inputs that have ended."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native


class Stock:
    """Counters of loaded and emitted rows for ``inputs`` streams. The chunks of the streams can have any size.

    Attributes:
        has_ended: List with one entry per input; an entry is True if no further chunk of the input follows.
    """

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.has_ended = [False] * inputs
        self._next_row = np.zeros(inputs, np.int64)
        self._stop_row = np.zeros(inputs, np.int64)
        self._given_before = np.zeros(inputs, np.int64)  # rows in earlier chunks

    @property
    def given(self) -> NDArray[np.int64]:
        """Number of rows emitted from each input since the start of the input, int64."""
        return self._given_before + self._next_row

    def rows_left(self, slot: int) -> int:
        """Return the number of rows in the input's current chunk that have not been emitted yet."""
        return int(self._stop_row[slot] - self._next_row[slot])

    def is_low(self, due: NDArray[np.floating[Any]] | NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the inputs that have emitted half of their chunk, or have at most ``due`` rows left.

        Inputs that have not loaded a chunk are not low.
        """
        left = self._stop_row - self._next_row
        return (self._stop_row > 0) & ((2 * left <= self._stop_row) | (left <= due))

    def load(self, slot: int, rows: int) -> None:
        """Set the number of rows in the next chunk of ``slot``.

        All rows of the previous chunk must have been emitted.
        """
        if self.has_ended[slot] or self.rows_left(slot) or rows < 0:
            raise ValueError(f"input {slot} cannot take a chunk of {rows} rows: {self.rows_left(slot)} are left")
        self._given_before[slot] += self._stop_row[slot]
        self._next_row[slot] = 0
        self._stop_row[slot] = rows

    def ended(self, slot: int) -> None:
        """Mark ``slot`` as ended. Rows of this input that are already loaded are still emitted."""
        if self.has_ended[slot]:
            raise ValueError(f"input {slot} has ended before")
        self.has_ended[slot] = True

    def follow(self, choices: NDArray[np.int32]) -> NDArray[np.int64]:
        """Emit one row of each chosen input in turn, until a chosen input has no loaded row.

        Args:
            choices: Number of the input of each row, int32.

        Returns:
            The index of each emitted row in its input's current chunk, int64. The result can be shorter than
            ``choices``.
        """
        return _native.follow_choices(choices, self._next_row, self._stop_row)

    def restore(self, given: list[int]) -> None:
        """Move to the position after ``given`` emitted rows of each input, with no rows loaded and no input ended."""
        if len(given) != self.inputs:
            raise ValueError(f"the state has {len(given)} inputs, this order has {self.inputs}")
        self._given_before[:] = given
        self._next_row[:] = 0
        self._stop_row[:] = 0
        self.has_ended = [False] * self.inputs
