"""Small row groups that are read and decoded together, because each group costs requests and calls on threads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from aiostream_data.formats.row_groups import RowGroup, joined

FIRST_NBYTES: Final = 1 << 20
"""Small row groups at the start of a run are read together up to this size, so that the first rows arrive early."""

JOINED_NBYTES: Final = 4 << 20
"""Later row groups are read together up to this size, as stored bytes and as declared memory."""


def joined_sizes() -> Iterator[int]:
    """Yield the maximum size in bytes of each group of a run that consists of several row groups."""
    nbytes = FIRST_NBYTES
    while True:
        yield nbytes
        nbytes = min(2 * nbytes, JOINED_NBYTES)


class JoinedGroups:
    """All row groups of a file, in order.

    Args:
        groups: The row groups. Some may have no rows.
    """

    def __init__(self, groups: Sequence[RowGroup]) -> None:
        self._groups = groups
        self._ends = list(accumulate(group.rows for group in groups))

    def from_row(self, first_row: int, numbers: Iterable[int]) -> Iterator[RowGroup]:
        """Yield the row groups that contain row ``first_row`` or later rows, with small neighbors as one group.

        Args:
            numbers: Numbers of the row groups to read, ascending. They have rows.
        """
        some: list[RowGroup] = []
        last = nbytes = 0
        sizes = joined_sizes()
        most = next(sizes)
        for number in numbers:
            group = self._groups[number]
            if self._ends[number] <= first_row:
                continue
            nbytes += _nbytes(group)
            if some and (number != last + 1 or nbytes > most):
                yield _as_one(some)
                some, nbytes, most = [], _nbytes(group), next(sizes)
            some.append(group)
            last = number
        if some:
            yield _as_one(some)

    def numbers(self, group: RowGroup) -> range:
        """Return the numbers of the row groups that a group from :meth:`from_row` consists of."""
        if not group.rows:
            return range(0)
        first = bisect_right(self._ends, group.first_row)
        return range(first, bisect_right(self._ends, group.first_row + group.rows - 1) + 1)

    def separated(self, group: RowGroup) -> list[RowGroup]:
        """Return the row groups that a group from :meth:`from_row` consists of."""
        return [self._groups[number] for number in self.numbers(group)]


def _as_one(groups: Sequence[RowGroup]) -> RowGroup:
    if len(groups) == 1:
        return groups[0]
    ranges = joined(part for group in groups for part in group.ranges)
    rows, nbytes = sum(group.rows for group in groups), sum(group.nbytes for group in groups)
    return RowGroup(groups[0].first_row, rows, ranges, nbytes)


def _nbytes(group: RowGroup) -> int:
    return group.stored_nbytes + group.nbytes
