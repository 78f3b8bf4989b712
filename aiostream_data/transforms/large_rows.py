"""Store of long variable-length rows in numbered slots, with one memory allocation per row.

A shared arena needs no allocation per row. However, an arena can take twice the size of its rows, and more during
compaction. For rows of many kilobytes, the allocation is cheap compared with copying the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import VarColumn

MIN_NBYTES = 4 << 10
"""Minimum mean row size in bytes for which one allocation per row is worthwhile."""


def are_large(rows: VarColumn) -> bool:
    """Return True if the store should use one allocation per row for rows like these."""
    return len(rows) > 0 and rows.nbytes >= MIN_NBYTES * len(rows)


class LargeRowSlots:
    """Store of a column of long rows that implements :class:`~.slots.SlotStore`."""

    def __init__(self, example: VarColumn) -> None:
        self._kind = example.kind
        self._nothing = np.empty((0, *example.values.shape[1:]), example.values.dtype)
        self._rows: list[NDArray[Any]] = []
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def fill(self, first: int, rows: VarColumn) -> None:
        self._rows[first:] = self._copies(rows)

    def exchange(self, slots: NDArray[np.int64], rows: VarColumn) -> VarColumn:
        given = []
        for slot, row in zip(slots.tolist(), self._copies(rows), strict=True):
            given.append(self._rows[slot])
            self._rows[slot] = row
        self._nbytes -= sum(row.nbytes for row in given)
        return self._joined(given)

    def take(self, slots: NDArray[np.int64]) -> VarColumn:
        return self._joined([self._rows[slot] for slot in slots.tolist()])

    def _copies(self, rows: VarColumn) -> list[NDArray[Any]]:
        starts, stops = rows.starts.tolist(), (rows.starts + rows.lengths).tolist()
        copies = [rows.values[start:stop].copy() for start, stop in zip(starts, stops, strict=True)]
        self._nbytes += sum(row.nbytes for row in copies)
        return copies

    def _joined(self, rows: list[NDArray[Any]]) -> VarColumn:
        lengths = np.array([len(row) for row in rows], np.int64)
        values = np.concatenate(rows) if rows else self._nothing
        return VarColumn(values, np.cumsum(lengths) - lengths, lengths, self._kind)
