"""Which rows of a stream stand in which window, and in which batch of a cycle of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError

Numbers = NDArray[np.int64]


class WindowOrder:
    """Windows of tf.data's ``window(size, shift, stride, drop_remainder)``; resumable.

    Window n stands for the rows ``n * shift + i * stride`` for i below ``size``, as far as there are such
    rows. It is known as soon as its last row has come; at the end of the stream, windows that lack rows
    follow, unless they are dropped. ``shift == size`` with ``stride == 1`` is how ``batch`` cuts.

    Args:
        size, shift, stride: At least 1.
        drop_remainder: Leave out windows that lack rows.

    Attributes:
        pushed: How many rows have come.
        given: How many windows have been given.
    """

    def __init__(self, size: int, shift: int, stride: int = 1, drop_remainder: bool = False) -> None:
        if min(size, shift, stride) < 1:
            raise PlanError(f"size, shift and stride must be at least 1, got {size}, {shift} and {stride}")
        self.size, self.shift, self.stride = size, shift, stride
        self.drop_remainder = drop_remainder
        self.pushed = 0
        self.given = 0

    @property
    def span(self) -> int:
        """Rows from the first of a full window to its last."""
        return (self.size - 1) * self.stride + 1

    def push(self, count: int) -> list[Numbers]:
        """Return the row numbers of every window that is full with ``count`` more rows."""
        self.pushed += count
        return self._given_up_to((self.pushed - self.span) // self.shift + 1)

    def finish(self) -> list[Numbers]:
        """Return the windows that are left when no row follows."""
        return [] if self.drop_remainder else self._given_up_to(-(-self.pushed // self.shift))

    def first_needed(self) -> int:
        """Return the number of the first row that a window still to come can hold."""
        return self.begins(self.given)

    def begins(self, window: int) -> int:
        """Return the number of a window's first row."""
        return window * self.shift

    def rows_behind(self, windows: int) -> int:
        """Return up to which row the stream was read, at least, when so many full windows were given.

        Rows in a gap between two windows do not count: they may still be on their way.
        """
        return min(self.begins(windows), self.begins(windows - 1) + self.span) if windows else 0

    def lacking(self) -> int:
        """Return how many numbers to leave out so that the next window begins with the next row.

        0 unless the last window given lacks rows.
        """
        lacks = self.given > 0 and self.pushed < self.begins(self.given - 1) + self.span
        return max(0, self.begins(self.given) - self.pushed) if lacks else 0

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {"given": self.given, "pushed": self.pushed}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position. The next row to come has the number that ``pushed`` says."""
        self.given, self.pushed = state["given"], state["pushed"]

    def _given_up_to(self, stop: int) -> list[Numbers]:
        windows = [self._rows_of(window) for window in range(self.given, stop)]
        self.given += len(windows)
        return windows

    def _rows_of(self, window: int) -> Numbers:
        start = self.begins(window)
        return np.arange(start, min(start + self.span, self.pushed), self.stride)


class CycleOrder:
    """Batches of consecutive rows whose sizes come round and round, as tf.data's ``rebatch([2, 1, 1])``; resumable.

    Args:
        sizes: At least one, each at least 1.
        drop_remainder: Leave out a last batch that is not full.

    Attributes:
        pushed: How many rows have come.
        given: How many batches have been given.
    """

    def __init__(self, sizes: Sequence[int], drop_remainder: bool = False) -> None:
        if not sizes or min(sizes) < 1:
            raise PlanError(f"batch sizes must be at least 1, got {list(sizes)}")
        self._begins = [0, *accumulate(sizes)]
        self.drop_remainder = drop_remainder
        self.pushed = 0
        self.given = 0

    def push(self, count: int) -> list[Numbers]:
        """Return the row numbers of every batch that is full with ``count`` more rows."""
        self.pushed += count
        batches = []
        while self.begins(self.given + 1) <= self.pushed:
            batches.append(np.arange(self.begins(self.given), self.begins(self.given + 1)))
            self.given += 1
        return batches

    def finish(self) -> list[Numbers]:
        """Return the batch that is left when no row follows, if there is one."""
        start = self.first_needed()
        if self.drop_remainder or start >= self.pushed:
            return []
        self.given += 1
        return [np.arange(start, self.pushed)]

    def first_needed(self) -> int:
        """Return the number of the first row that is in no batch yet."""
        return self.begins(self.given)

    def begins(self, batch: int) -> int:
        """Return the number of a batch's first row."""
        rounds, place = divmod(batch, len(self._begins) - 1)
        return rounds * self._begins[-1] + self._begins[place]

    def rows_behind(self, batches: int) -> int:
        """Return how many rows so many full batches hold."""
        return self.begins(batches)

    def lacking(self) -> int:
        """Return how many rows the last batch given lacks."""
        return max(0, self.begins(self.given) - self.pushed)

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {"given": self.given, "pushed": self.pushed}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position. The next row to come has the number that ``pushed`` says."""
        self.given, self.pushed = state["given"], state["pushed"]
