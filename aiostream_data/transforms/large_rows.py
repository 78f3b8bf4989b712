"""Store of long variable-length rows in numbered slots, with one memory allocation per row.

A shared arena needs no allocation per row. However, an arena can take twice the size of its rows, and more during
compaction. For rows of many kilobytes, the allocation is cheap compared with copying the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import LONG_ROW_NBYTES, SeparateBytes, VarColumn


def are_large(rows: VarColumn) -> bool:
    """Return True if the store should use one allocation per row for rows like these."""
    return len(rows) > 0 and rows.nbytes >= LONG_ROW_NBYTES * len(rows)


class LargeBytesSlots:
    """Store of a column of long ``bytes`` rows that implements :class:`~.slots.SlotStore`. Each row is copied at most
    once."""

    def __init__(self) -> None:
        self._rows: list[bytes] = []
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def fill(self, first: int, rows: VarColumn) -> None:
        self._rows[first:] = rows.elements()
        self._nbytes += int(rows.lengths.sum())

    def exchange(self, slots: NDArray[np.int64], rows: VarColumn) -> SeparateBytes:
        given = []
        for slot, row in zip(slots.tolist(), rows.elements(), strict=True):
            given.append(self._rows[slot])
            self._rows[slot] = row
        self._nbytes += int(rows.lengths.sum()) - sum(map(len, given))
        return SeparateBytes(given)

    def take(self, slots: NDArray[np.int64]) -> SeparateBytes:
        return SeparateBytes([self._rows[slot] for slot in slots.tolist()])


class LargeRowSlots:
    """Store of a column of long ``str`` or ``array`` rows that implements :class:`~.slots.SlotStore`."""

    def __init__(self, example: VarColumn) -> None:
        self._kind = example.kind
        self._nothing = np.empty((0, *example.item_shape), example.dtype)
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
