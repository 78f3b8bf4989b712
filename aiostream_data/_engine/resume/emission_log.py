"""Log of the rows that an unordered stage received and emitted.

The saved state of an unordered stage names the rows that were received but not emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.lineage import Lineage, concat_lineages
from aiostream_data.rows.row_ids import RowIds

NO_ROWS = Lineage(RowIds.none())


@dataclass(frozen=True, slots=True)
class _Taken:
    first: int
    rows: Lineage


class _Point(NamedTuple):
    """The log after ``given`` rows were emitted.

    Attributes:
        high: Number of received rows.
        missing: Numbers below ``high`` of the rows that were not emitted, ascending.
        entries: Number of entries of the log that are counted, the last one perhaps in part.
        used: Number of counted rows of the last entry; its dropped rows are counted.
    """

    given: int
    high: int
    missing: NDArray[np.int64]
    entries: int
    used: int


class EmissionLog:
    """Log of the rows that an unordered stage received and emitted.

    The log numbers the rows in the order in which the stage received them. Safe from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: list[_Taken] = []
        self._count = self._finished = 0
        self._start = _Point(0, 0, np.empty(0, np.int64), 0, 0)  # no saved state will need earlier rows
        self._latest = self._start  # of place(): a loop that saves each step continues from the step before
        self._emitted: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []  # (emitted, dropped) row numbers

    @property
    def all_are_finished(self) -> bool:
        """True if every received row was emitted or dropped."""
        return self._finished == self._count

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
            self._finished += len(numbers)

    def place(self, given: int) -> tuple[int, Lineage]:
        """Return how many rows were received before ``given`` rows were emitted, and which of them were not emitted."""
        with self._lock:
            self._latest = self._after(given)
            return self._latest.high, self._lineage(self._latest.missing)

    def forget(self, given: int) -> None:
        """Discard the history before row ``given``, which no saved state will need."""
        with self._lock:
            point = self._after(given)
            is_whole = point.entries > 0 and point.used == len(self._emitted[point.entries - 1][0])
            done = point.entries if is_whole else max(0, point.entries - 1)
            del self._emitted[:done]
            left = (0, 0) if is_whole else (point.entries - done, point.used)
            self._start = self._latest = _Point(given, point.high, point.missing, *left)
            lowest = int(point.missing[0]) if len(point.missing) else point.high
            self._taken = [taken for taken in self._taken if taken.first + len(taken.rows) > lowest]

    def _after(self, given: int) -> _Point:
        point = self._latest if self._latest.given <= given else self._start
        entries, used = point.entries, point.used
        left = given - point.given
        emitted = []
        if entries:
            rows = self._emitted[entries - 1][0][used : used + left]
            emitted.append(rows)
            used, left = used + len(rows), left - len(rows)
        while entries < len(self._emitted):
            rows, dropped = self._emitted[entries]
            if left == 0 and len(rows):
                break
            emitted += (rows[:left], dropped)
            entries, used, left = entries + 1, min(left, len(rows)), left - min(left, len(rows))
        high, missing = _without(np.concatenate(emitted), point.high, point.missing) if emitted else point[1:3]
        return _Point(given, high, missing, entries, used)

    def _lineage(self, numbers: NDArray[np.int64]) -> Lineage:
        parts = []
        for taken in self._taken:
            inside = numbers[(numbers >= taken.first) & (numbers < taken.first + len(taken.rows))]
            if len(inside):
                parts.append(taken.rows.take(inside - taken.first))
        return concat_lineages(parts) if parts else NO_ROWS


def _without(emitted: NDArray[np.int64], high: int, missing: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    """Return the number of received rows, and the missing rows, after the rows ``emitted`` were emitted too."""
    if not len(emitted):
        return high, missing
    new_high = max(high, int(emitted.max()) + 1)
    is_missing = np.ones(new_high - high, np.bool_)
    is_missing[emitted[emitted >= high] - high] = False
    late = emitted[emitted < high]
    before = np.setdiff1d(missing, late, assume_unique=True) if len(late) else missing
    return new_high, np.concatenate([before, np.flatnonzero(is_missing) + high])
