"""Row ids of consecutive rows, described by a few numbers.

Most chunks contain consecutive rows of one file. The ids of these rows differ only in the ordinal, which counts up by
one. For small rows, writing all ids to an array takes longer than copying the data. The class :class:`IdRun` therefore
stores only the first id and which columns count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native

Numbers = NDArray[np.int64]

MOST_PIECES = 16
"""Number of pieces below which :func:`gathered_run` checks whether the pieces are one run."""


class IdRun(NamedTuple):
    """Ids without padding: an int64 array of shape (rows, columns), each column constant or counting up by one.

    Attributes:
        first: The numbers of the first row.
        steps: For each column 1 if it counts, 0 if it is constant.
        rows: Number of rows.
    """

    first: tuple[int, ...]
    steps: tuple[int, ...]
    rows: int

    @property
    def nbytes(self) -> int:
        """Size of :meth:`array` in bytes."""
        return 8 * len(self.first) * self.rows

    def array(self) -> Numbers:
        pairs = np.empty((self.rows, len(self.first)), np.int64)
        for column in range(len(self.first)):
            pairs[:, column] = self.column(column) if self.steps[column] else self.first[column]
        return pairs

    def column(self, column: int) -> Numbers:
        """Return the numbers of all rows in one column."""
        first = self.first[column]
        return np.arange(first, first + self.rows) if self.steps[column] else np.full(self.rows, first, np.int64)

    def at(self, rows: Numbers) -> Numbers:
        """Return the ids of the rows at the indices ``rows``, all at least 0, as an array."""
        pairs = np.empty((len(rows), len(self.first)), np.int64)
        for column, (first, step) in enumerate(zip(self.first, self.steps, strict=True)):
            pairs[:, column] = rows + first if step else first
        return pairs

    def slice(self, start: int, stop: int) -> IdRun:
        """Return the ids of rows ``start`` to ``stop`` (exclusive), with the bounds of a slice of a sequence."""
        start, stop, _ = slice(start, stop).indices(self.rows)
        return IdRun(self._at(start), self.steps, max(0, stop - start))

    def cut(self, bounds: Iterable[tuple[int, int]]) -> list[IdRun]:
        """Return the ids of rows ``start`` to ``stop`` (exclusive) for each pair of ``bounds``, none below 0."""
        steps = self.steps
        if steps != (0, 1):
            return [IdRun(self._at(start), steps, stop - start) for start, stop in bounds]
        split, ordinal = self.first
        return [IdRun((split, ordinal + start), steps, stop - start) for start, stop in bounds]

    def with_constants(self, numbers: tuple[int, ...]) -> IdRun:
        """Append constant columns."""
        return IdRun(self.first + numbers, self.steps + (0,) * len(numbers), self.rows)

    def beside(self, right: IdRun) -> IdRun:
        """Append the columns of ``right``, which must have as many rows."""
        return IdRun(self.first + right.first, self.steps + right.steps, self.rows)

    def counts_ordinals(self) -> bool:
        """Return True if the ordinals of the source rows count up, and all other columns are constant."""
        return self.steps[1] == 1 and sum(self.steps) == 1

    def at_row(self, row: int) -> tuple[int, ...]:
        """Return the numbers of one row, with the index of an item of a sequence."""
        return self._at(range(self.rows)[row])

    def _at(self, row: int) -> tuple[int, ...]:
        if not row:
            return self.first
        return tuple(first + row * step for first, step in zip(self.first, self.steps, strict=True))


def joined(parts: list[IdRun]) -> IdRun | None:
    """Return the concatenation of all parts, or None if it is not one run."""
    whole = parts[0]
    first, steps, rows = whole
    for part in parts[1:]:
        if part.steps != steps or part.first != tuple(at + rows * step for at, step in zip(first, steps, strict=True)):
            return None
        rows += part.rows
    return whole._replace(rows=rows)


def gathered_ids(parts: list[IdRun], which: NDArray[np.int32], rows: Numbers) -> Numbers | None:
    """Return the id of row ``rows[i]`` of ``parts[which[i]]`` for each i, or None if the widths of ids differ."""
    if len({len(part.first) for part in parts}) != 1:
        return None
    firsts, steps, counts = (np.array(numbers, np.int64) for numbers in zip(*parts, strict=True))
    return _native.ids_of_runs(firsts, steps, counts, which, rows)


def gathered_run(parts: list[IdRun], which: NDArray[np.int32], rows: Numbers) -> IdRun | None:
    """Return the ids of row ``rows[i]`` of ``parts[which[i]]`` for each i, or None if they are not one run."""
    if not len(rows):
        return None
    breaks = _native.first_breaks(which, rows, MOST_PIECES)
    if len(breaks) == MOST_PIECES:
        return None
    starts = [0, *breaks]
    stops = [*starts[1:], len(rows)]
    return joined(
        [
            parts[which[start]].slice(int(rows[start]), int(rows[start]) + stop - start)
            for start, stop in zip(starts, stops, strict=True)
        ]
    )
