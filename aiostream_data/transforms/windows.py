"""Compute the row numbers of sliding windows, and of batches whose sizes follow a repeating cycle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError

Numbers = NDArray[np.int64]


class WindowOrder:
    """Windows as in tf.data's ``window(size, shift, stride, drop_remainder)``. Resumable.

    Window n consists of the rows ``n * shift + i * stride`` for i from 0 to ``size`` (exclusive). A window is emitted
    as soon as its last row has arrived. Incomplete windows are emitted at the end of the stream, unless they are
    dropped. With ``shift == size`` and ``stride == 1``, windows contain the same rows as batches of ``batch``.

    Args:
        size: Number of rows in a complete window; at least 1.
        shift: Distance between the first rows of consecutive windows; at least 1.
        stride: Distance between consecutive rows of a window; at least 1.
        drop_remainder: Drop incomplete windows.

    Attributes:
        pushed: Number of rows received so far.
        given: Number of windows emitted so far.
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
        """Number of stream rows from the first to the last row of a complete window, inclusive."""
        return (self.size - 1) * self.stride + 1

    def push(self, count: int) -> list[Numbers]:
        """Receive ``count`` rows. Return the row numbers of each window that the new rows complete."""
        self.pushed += count
        return self._given_up_to((self.pushed - self.span) // self.shift + 1)

    def finish(self) -> list[Numbers]:
        """End the stream. Return the incomplete windows, or an empty list if ``drop_remainder`` is True."""
        return [] if self.drop_remainder else self._given_up_to(-(-self.pushed // self.shift))

    def first_needed(self) -> int:
        """Return the number of the first row that a later window can contain."""
        return self.begins(self.given)

    def begins(self, window: int) -> int:
        """Return the number of the first row of a window."""
        return window * self.shift

    def rows_behind(self, windows: int) -> int:
        """Return the number of the row at which the input resumes after the first ``windows`` complete windows.

        Rows in a gap between two windows do not count, because these rows may not have arrived yet.
        """
        return min(self.begins(windows), self.begins(windows - 1) + self.span) if windows else 0

    def lacking(self) -> int:
        """Return how many row numbers to skip so that the next window begins at the next row.

        The result is 0 unless the last emitted window is incomplete.
        """
        lacks = self.given > 0 and self.pushed < self.begins(self.given - 1) + self.span
        return max(0, self.begins(self.given) - self.pushed) if lacks else 0

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data."""
        return {"given": self.given, "pushed": self.pushed}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`. The next row gets the row number ``pushed`` from the state."""
        self.given, self.pushed = state["given"], state["pushed"]

    def _given_up_to(self, stop: int) -> list[Numbers]:
        windows = [self._rows_of(window) for window in range(self.given, stop)]
        self.given += len(windows)
        return windows

    def _rows_of(self, window: int) -> Numbers:
        start = self.begins(window)
        return np.arange(start, min(start + self.span, self.pushed), self.stride)


class CycleOrder:
    """Batches of consecutive rows whose sizes repeat in a cycle, as in tf.data's ``rebatch([2, 1, 1])``. Resumable.

    Args:
        sizes: Batch sizes of one cycle: at least one size, and each size at least 1.
        drop_remainder: Drop the last batch if it is incomplete.

    Attributes:
        pushed: Number of rows received so far.
        given: Number of batches emitted so far.
    """

    def __init__(self, sizes: Sequence[int], drop_remainder: bool = False) -> None:
        if not sizes or min(sizes) < 1:
            raise PlanError(f"batch sizes must be at least 1, got {list(sizes)}")
        self._begins = [0, *accumulate(sizes)]
        self.drop_remainder = drop_remainder
        self.pushed = 0
        self.given = 0

    def push(self, count: int) -> list[Numbers]:
        """Receive ``count`` rows. Return the row numbers of each batch that the new rows complete."""
        self.pushed += count
        batches = []
        while self.begins(self.given + 1) <= self.pushed:
            batches.append(np.arange(self.begins(self.given), self.begins(self.given + 1)))
            self.given += 1
        return batches

    def finish(self) -> list[Numbers]:
        """End the stream. Return the last, incomplete batch, or an empty list if that batch is empty or dropped."""
        start = self.first_needed()
        if self.drop_remainder or start >= self.pushed:
            return []
        self.given += 1
        return [np.arange(start, self.pushed)]

    def first_needed(self) -> int:
        """Return the number of the first row that is not in a batch yet."""
        return self.begins(self.given)

    def begins(self, batch: int) -> int:
        """Return the number of the first row of a batch."""
        rounds, place = divmod(batch, len(self._begins) - 1)
        return rounds * self._begins[-1] + self._begins[place]

    def rows_behind(self, batches: int) -> int:
        """Return the total number of rows in the first ``batches`` complete batches."""
        return self.begins(batches)

    def lacking(self) -> int:
        """Return the number of rows that are missing from the last emitted batch."""
        return max(0, self.begins(self.given) - self.pushed)

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data."""
        return {"given": self.given, "pushed": self.pushed}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`. The next row gets the row number ``pushed`` from the state."""
        self.given, self.pushed = state["given"], state["pushed"]
