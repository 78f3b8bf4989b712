"""History of an operator that groups rows by length (buckets, packing), from which past positions are computed.

How this works. The grouping depends only on the lengths of the rows. To compute a past position, a copy of the grouping
order runs again over the row lengths. The journal regularly stores a copy of the grouping order, and the lengths and
ids of the rows that this copy needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.position import Log
from aiostream_data.rows.lineage import Lineage, concat_lineages
from aiostream_data.rows.row_ids import RowIds

MARK_ROWS = 256
"""Number of rows between two stored copies of the grouping order.

Running the grouping order over this number of rows takes less than a millisecond.
"""

Numbers = NDArray[np.int64]


class GroupOrder(Protocol):
    """Interface of an order that groups rows by their lengths.

    A grouping order may keep rows until their group is complete.
    """

    pushed: int
    dropped: int

    def push(self, lengths: Numbers, limit: int | None = None) -> Sequence[Any]:
        """Add rows to groups until ``limit`` groups are complete. Return the complete groups."""

    def finish(self, limit: int | None = None) -> Sequence[Any]:
        """Return the incomplete groups at the end of the input, at most ``limit`` groups."""

    def held(self) -> Numbers:
        """Return the numbers of the rows whose group is not complete."""

    def rows_held(self) -> int:
        """Return the number of received rows that can still become part of a later group."""

    def state(self) -> dict[str, Any]:
        """Return the position of the grouping order as JSON-compatible data."""

    def restore(self, state: dict[str, Any], lengths: Numbers) -> None:
        """Restore a saved position; ``lengths`` are the lengths of the rows in incomplete groups.

        Number the rows in incomplete groups from 0.
        """

    def copy(self) -> Self:
        """Return a copy of the grouping order at the same position."""


O = TypeVar("O", bound=GroupOrder)  # noqa: E741


class _Came(NamedTuple):
    """Consecutive input rows; the first row has the number ``first``."""

    first: int
    lengths: Numbers
    rows: Lineage


_NO_ROWS = Lineage(RowIds.none())


class GroupJournal(Generic[O]):
    """History of one order. The thread that pushes rows writes the history; any thread may read it.

    Args:
        order: Grouping order at its initial position, before any row.
    """

    def __init__(self, order: O) -> None:
        self._lock = Lock()
        self._marks: Log[O] = Log()
        self._came: list[_Came] = []
        # Rows older than _came that a stored copy of the order still refers to.
        self._old_numbers = np.empty(0, np.int64)
        self._old = _NO_ROWS
        self._given = 0
        self._last: tuple[int, O] | None = None
        self._marks.add(0, order.copy())

    def begin(self, order: O, lengths: Numbers, held: Lineage) -> None:
        """Start the history with a grouping order whose incomplete groups contain the rows ``held``."""
        self._marks.add(0, order.copy())
        self._came = [_Came(0, lengths, held)]

    def push(self, order: O, lengths: Numbers, rows: Lineage) -> list[Any]:
        """Add rows to the grouping order and record them. Return the complete groups."""
        with self._lock:
            self._came.append(_Came(order.pushed, lengths, rows))
        groups: list[Any] = []
        for start in range(0, len(lengths), MARK_ROWS):
            groups += order.push(lengths[start : start + MARK_ROWS])
            self._marks.add(self._given + len(groups), order.copy())
        self._given += len(groups)
        return groups

    def at(self, given: int) -> tuple[O, Lineage]:
        """Return a copy of the grouping order after ``given`` groups, and the rows in the copy's incomplete groups."""
        start, mark = self._nearest(given)
        order, left = mark.copy(), given - start
        for part in self._parts():
            if left == 0:
                break
            rest = part.lengths[max(0, order.pushed - part.first) :]
            left -= len(order.push(rest, left)) if len(rest) else 0
        if left:
            order.finish(left)
        self._last = given, order
        return order, self._rows(order.held())

    def forget(self, given: int) -> int:
        """Discard the history before group ``given``, which no saved state will need.

        Return the number of input rows before the oldest stored copy of the grouping order.
        """
        self._marks.forget(given)
        found = self._marks.find(given)
        if found is None:
            return 0
        oldest = found[1]
        came = self._parts()
        first = next((part.first for part in came if part.first + len(part.lengths) > oldest.pushed), oldest.pushed)
        if came and came[0].first < first:
            self._forget_rows_before(first, np.unique(oldest.held()))
        return oldest.pushed

    def _nearest(self, given: int) -> tuple[int, O]:
        """Return the last stored copy at or before group ``given``, and the number of groups at this copy."""
        found, last = self._marks.find(given), self._last
        if found is None:
            raise ValueError(f"the position after {given} groups was discarded")
        # The last result is usable only after the stored copy, because rows before that copy may be discarded.
        if last is not None and last[0] <= given and last[1].pushed > found[1].pushed:
            return last
        return found

    def _forget_rows_before(self, first: int, held: Numbers) -> None:
        """Discard the rows before row number ``first``, except the rows in ``held``."""
        numbers = held[held < first]
        rows = self._rows(numbers)
        with self._lock:
            self._old_numbers, self._old = numbers, rows
            self._came = [part for part in self._came if part.first >= first]

    def _parts(self) -> list[_Came]:
        with self._lock:
            return list(self._came)

    def _rows(self, numbers: Numbers) -> Lineage:
        """Return the recorded rows that have these numbers, in the order of ``numbers``."""
        with self._lock:
            came, old_numbers, old = list(self._came), self._old_numbers, self._old
        firsts = np.array([part.first for part in came], np.int64)
        which = np.searchsorted(firsts, numbers, side="right") - 1  # -1: a row of _old
        found = []
        for part in np.unique(which).tolist():
            mine = numbers[which == part]
            found.append(old.take(np.searchsorted(old_numbers, mine)) if part < 0
                         else came[part].rows.take(mine - came[part].first))  # fmt: skip
        if not found:
            return _NO_ROWS
        return concat_lineages(found).take(np.argsort(np.argsort(which, kind="stable")))
