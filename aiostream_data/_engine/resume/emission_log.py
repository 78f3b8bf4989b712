"""Log of the rows that an unordered stage received and emitted.

The saved state of an unordered stage names the rows that were received but not emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.lineage import Lineage, concat_lineages
from aiostream_data.rows.row_ids import RowIds

NO_ROWS = Lineage(RowIds.none())


@dataclass(frozen=True, slots=True)
class _Taken:
    first: int
    rows: Lineage


class EmissionLog:
    """Log of the rows that an unordered stage received and emitted.

    The log numbers the rows in the order in which the stage received them. Safe from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: list[_Taken] = []
        self._count = 0
        self._missing = np.empty(0, np.int64)  # rows below ``_high`` not emitted by the time ``_given`` rows were
        self._high = 0
        self._given = 0
        self._emitted: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []  # (emitted, dropped) row numbers

    def take_in(self, rows: Lineage) -> int:
        """Record that the stage starts to process these rows. Return the number of the first of these rows."""
        with self._lock:
            first = self._count
            self._taken.append(_Taken(first, rows))
            self._count += len(rows)
            return first

    def give_out(self, numbers: NDArray[np.int64], kept: NDArray[np.int64] | None = None) -> None:
        """Record the numbers of finished rows, in the order in which the stage emits them.

        Args:
            numbers: All finished rows.
            kept: The rows that the stage emits; None if all rows are emitted. The others are dropped.
        """
        given = numbers if kept is None else kept
        left_out = numbers[:0] if kept is None else np.setdiff1d(numbers, kept, assume_unique=True)
        with self._lock:
            self._emitted.append((given, left_out))

    def place(self, given: int) -> tuple[int, Lineage]:
        """Return how many rows were received before ``given`` rows were emitted, and which of them were not emitted."""
        with self._lock:
            high, missing = self._after(given)
            return high, self._lineage(missing)

    def forget(self, given: int) -> None:
        """Discard the history before row ``given``, which no saved state will need."""
        with self._lock:
            self._high, self._missing = self._after(given)
            left = given - self._given
            self._given = given
            while self._emitted and len(self._emitted[0][0]) <= left:
                left -= len(self._emitted.pop(0)[0])
            if left:  # _after() has counted the dropped rows of this entry
                rows, left_out = self._emitted[0]
                self._emitted[0] = rows[left:], left_out[:0]
            lowest = int(self._missing[0]) if len(self._missing) else self._high
            self._taken = [taken for taken in self._taken if taken.first + len(taken.rows) > lowest]

    def _after(self, given: int) -> tuple[int, NDArray[np.int64]]:
        parts, left = [np.empty(0, np.int64)], given - self._given
        for rows, left_out in self._emitted:
            if left < len(rows) and left == 0:
                break
            parts += (rows[:left], left_out)
            left -= min(left, len(rows))
        emitted = np.concatenate(parts)
        if not len(emitted):
            return self._high, self._missing
        high = max(self._high, int(emitted.max()) + 1)
        candidates = np.concatenate([self._missing, np.arange(self._high, high)])
        return high, np.setdiff1d(candidates, emitted, assume_unique=True)

    def _lineage(self, numbers: NDArray[np.int64]) -> Lineage:
        parts = []
        for taken in self._taken:
            inside = numbers[(numbers >= taken.first) & (numbers < taken.first + len(taken.rows))]
            if len(inside):
                parts.append(taken.rows.take(inside - taken.first))
        return concat_lineages(parts) if parts else NO_ROWS
