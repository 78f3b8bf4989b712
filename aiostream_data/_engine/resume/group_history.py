"""Where an order that holds rows back stood after any group that its consumer may still stand at.

How this works. What an order does is a function of the lengths of the rows that came, so a place is found
again by letting a copy of the order run over lengths alone. Copies are kept from every few rows on, and
the lengths and ids of rows for as long as one of the copies may need them.
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
"""Rows between two copies: few enough that running over them takes a fraction of a millisecond."""

Numbers = NDArray[np.int64]


class GroupOrder(Protocol):
    """Decides by lengths which rows make a group, and may hold rows back for that."""

    pushed: int
    dropped: int

    def push(self, lengths: Numbers, limit: int | None = None) -> Sequence[Any]:
        """Take in rows, until ``limit`` groups came; return the groups that they complete."""

    def finish(self, limit: int | None = None) -> Sequence[Any]:
        """Return ``limit`` of the groups that are left when no row follows."""

    def held(self) -> Numbers:
        """Return the numbers of the rows that are held back."""

    def rows_held(self) -> int:
        """Return how many rows no group was the last of yet."""

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""

    def restore(self, state: dict[str, Any], lengths: Numbers) -> None:
        """Go to a position, at which rows of these lengths were held; they now count as the first that came."""

    def copy(self) -> Self:
        """Return another order at the same position."""


O = TypeVar("O", bound=GroupOrder)  # noqa: E741


class _Came(NamedTuple):
    """Rows from number ``first`` on, as they came."""

    first: int
    lengths: Numbers
    rows: Lineage


_NO_ROWS = Lineage(RowIds.none())


class GroupJournal(Generic[O]):
    """Notes of one order. Written by the thread that pushes, read by any.

    Args:
        order: The order before the first row comes.
    """

    def __init__(self, order: O) -> None:
        self._lock = Lock()
        self._marks: Log[O] = Log()
        self._came: list[_Came] = []
        # Rows that came before those of _came, as far as a mark needs them.
        self._old_numbers = np.empty(0, np.int64)
        self._old = _NO_ROWS
        self._given = 0
        self._last: tuple[int, O] | None = None
        self._marks.add(0, order.copy())

    def begin(self, order: O, lengths: Numbers, held: Lineage) -> None:
        """Begin with an order that holds these rows."""
        self._marks.add(0, order.copy())
        self._came = [_Came(0, lengths, held)]

    def push(self, order: O, lengths: Numbers, rows: Lineage) -> list[Any]:
        """Push rows of these lengths into the order; return the groups that it gives."""
        with self._lock:
            self._came.append(_Came(order.pushed, lengths, rows))
        groups: list[Any] = []
        for start in range(0, len(lengths), MARK_ROWS):
            groups += order.push(lengths[start : start + MARK_ROWS])
            self._marks.add(self._given + len(groups), order.copy())
        self._given += len(groups)
        return groups

    def at(self, given: int) -> tuple[O, Lineage]:
        """Return the order as it stood when ``given`` groups had been given, and the rows that it held."""
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
        """Discard history before row ``given``; return the number of input rows up to there."""
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
        """Return the copy from which the way to a place is shortest, and how many groups had been given there."""
        found, last = self._marks.find(given), self._last
        if found is None:
            raise ValueError(f"the place after {given} groups has been forgotten")
        # The rows between an earlier copy and a mark may have been forgotten already.
        if last is not None and last[0] <= given and last[1].pushed > found[1].pushed:
            return last
        return found

    def _forget_rows_before(self, first: int, held: Numbers) -> None:
        """Keep of the rows before number ``first`` those that are held."""
        numbers = held[held < first]
        rows = self._rows(numbers)
        with self._lock:
            self._old_numbers, self._old = numbers, rows
            self._came = [part for part in self._came if part.first >= first]

    def _parts(self) -> list[_Came]:
        with self._lock:
            return list(self._came)

    def _rows(self, numbers: Numbers) -> Lineage:
        """Return the rows of these numbers, in this order."""
        with self._lock:
            came, old_numbers, old = list(self._came), self._old_numbers, self._old
        firsts = np.array([part.first for part in came], np.int64)
        which = np.searchsorted(firsts, numbers, side="right") - 1  # -1: among the old ones
        found = []
        for part in np.unique(which).tolist():
            mine = numbers[which == part]
            found.append(old.take(np.searchsorted(old_numbers, mine)) if part < 0
                         else came[part].rows.take(mine - came[part].first))  # fmt: skip
        if not found:
            return _NO_ROWS
        return concat_lineages(found).take(np.argsort(np.argsort(which, kind="stable")))
