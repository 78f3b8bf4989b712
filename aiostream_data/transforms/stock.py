"""What the inputs of a mixture have ready: the rows of each one's current chunk, and whether more may come."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native


class Stock:
    """Rows loaded and given of ``inputs`` streams, which the owner cuts into chunks as it likes.

    Attributes:
        has_ended: Whether no further chunk comes, per input.
    """

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.has_ended = [False] * inputs
        self._next_row = np.zeros(inputs, np.int64)
        self._stop_row = np.zeros(inputs, np.int64)
        self._given_before = np.zeros(inputs, np.int64)  # rows before the current chunk

    @property
    def given(self) -> NDArray[np.int64]:
        """Rows given of each input since its beginning."""
        return self._given_before + self._next_row

    def rows_left(self, slot: int) -> int:
        """Return how many rows of the input's current chunk have not been given yet."""
        return int(self._stop_row[slot] - self._next_row[slot])

    def load(self, slot: int, rows: int) -> None:
        """Set the number of rows of the next chunk of ``slot``. The previous chunk is used up."""
        if self.has_ended[slot] or self.rows_left(slot) or rows < 0:
            raise ValueError(f"input {slot} cannot take a chunk of {rows} rows: {self.rows_left(slot)} are left")
        self._given_before[slot] += self._stop_row[slot]
        self._next_row[slot] = 0
        self._stop_row[slot] = rows

    def ended(self, slot: int) -> None:
        """Mark ``slot`` as ended. Rows already loaded are still delivered."""
        if self.has_ended[slot]:
            raise ValueError(f"input {slot} has ended before")
        self.has_ended[slot] = True

    def follow(self, choices: NDArray[np.int32]) -> NDArray[np.int64]:
        """Give a row of each chosen input in turn, until one has none loaded.

        Args:
            choices: int32, input per row.

        Returns:
            int64, the row in its input's current chunk for each choice that could be followed.
        """
        return _native.follow_choices(choices, self._next_row, self._stop_row)

    def restore(self, given: list[int]) -> None:
        """Go to where ``given`` rows of each input were given: nothing is loaded, and nothing has ended."""
        if len(given) != self.inputs:
            raise ValueError(f"the state has {len(given)} inputs, this order has {self.inputs}")
        self._given_before[:] = given
        self._next_row[:] = 0
        self._stop_row[:] = 0
        self.has_ended = [False] * self.inputs
