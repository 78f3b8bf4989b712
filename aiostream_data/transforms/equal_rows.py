"""Decide how a stream of rows is brought to a length: cut off, or filled up with its last rows again."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import RankError
from aiostream_data.ranks.world import Tail

REPEATED: Final = 64
"""So many of the last rows, at most, fill up in turn where rows are given again."""


def window_of(own: int, rows: int, tail: Tail) -> int:
    """Return how many of the last of ``own`` rows must be kept to be able to fill up to ``rows``."""
    if tail == "drop" or own >= rows:
        return 0
    return min(own, 1 if tail == "pad" else REPEATED)


class FillOrder:
    """Fills a stream up with its last rows, in turn; resumable.

    Its place in the input is as many rows back as are kept for filling up: these are read again, and not given.

    Args:
        window: How many of the last rows are kept.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.again = 0
        """Rows that are read again at the beginning."""
        self._came = 0
        self._filled_before = 0
        self._filled = 0

    def push(self, count: int) -> slice:
        """Return which of ``count`` incoming rows are given; all are to be kept, up to the window."""
        before, self._came = self._came, self._came + count
        return slice(min(count, max(0, self.again - before)), count)

    def fill(self, count: int, kept: int) -> NDArray[np.int64]:
        """Return which of ``kept`` last rows are the next ``count`` fillers."""
        first, self._filled = self._filled, self._filled + count
        return np.arange(first, first + count) % kept

    @property
    def filled(self) -> int:
        """Fillers given since the stream began."""
        return self._filled

    def input_rows(self, given: int) -> int:
        """Return from which row of its input on a run that has given ``given`` rows must be read to go on."""
        return self._place(given)[0]

    def state(self, given: int) -> dict[str, Any]:
        """Return the position after ``given`` rows of this run as plain data."""
        _, again, filled = self._place(given)
        return {"again": again, "filled": filled}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.again = state["again"]
        self._filled = self._filled_before = state["filled"]
        self._came = 0

    def _place(self, given: int) -> tuple[int, int, int]:
        used = min(self.again + given, max(self.again, self._came))
        again = min(self.window, used)
        return used - again, again, self._filled_before + self.again + given - used


def check_had(given: int, own: int, rows: int) -> None:
    """Refuse the end of a stream that has fewer rows than was said.

    Raises:
        RankError: It has.
    """
    if given < min(own, rows):
        raise RankError(f"counts= says that this rank's files have {own} rows, but they have {given}")
