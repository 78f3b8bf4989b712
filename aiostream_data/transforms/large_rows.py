"""Store of long variable-length rows in numbered slots, with one memory allocation per row.

A shared arena needs no allocation per row. However, an arena can take twice the size of its rows, and more during
compaction. For rows of many kilobytes, the allocation is cheap compared with copying the row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import LONG_ROW_NBYTES, SeparateBytes, VarColumn


def are_large(rows: VarColumn) -> bool:
    """Return True if the store should use one allocation per row for rows like these."""
    return len(rows) > 0 and rows.nbytes >= LONG_ROW_NBYTES * len(rows)


class LargeRowSlots:
    """Store of a column of long rows that implements :class:`~.slots.SlotStore`.

    ``bytes`` rows are kept as ``bytes`` objects, so they are copied at most once.
    """

    def __init__(self, example: VarColumn) -> None:
        self._kind = example.kind
        self._nothing = np.empty((0, *example.item_shape), example.dtype)
        self._item_nbytes = example.dtype.itemsize * math.prod(example.item_shape)
        self._rows: list[Any] = []
        self._items = 0

    @property
    def nbytes(self) -> int:
        return self._items * self._item_nbytes

    def fill(self, first: int, rows: VarColumn) -> None:
        self._rows[first:] = self._separate(rows)
        self._items += int(rows.lengths.sum())

    def exchange(self, slots: NDArray[np.int64], rows: VarColumn) -> VarColumn:
        given = []
        for slot, row in zip(slots.tolist(), self._separate(rows), strict=True):
            given.append(self._rows[slot])
            self._rows[slot] = row
        self._items += int(rows.lengths.sum()) - sum(map(len, given))
        return self._joined(given)

    def take(self, slots: NDArray[np.int64]) -> VarColumn:
        return self._joined([self._rows[slot] for slot in slots.tolist()])

    def _separate(self, rows: VarColumn) -> list[Any]:
        """Return the rows as objects that share no memory with each other or with the column."""
        if self._kind == "bytes":
            return rows.elements()
        starts, stops = rows.starts.tolist(), (rows.starts + rows.lengths).tolist()
        return [rows.values[start:stop].copy() for start, stop in zip(starts, stops, strict=True)]

    def _joined(self, rows: list[Any]) -> VarColumn:
        if self._kind == "bytes":
            return SeparateBytes(rows)
        lengths = np.array([len(row) for row in rows], np.int64)
        values = np.concatenate(rows) if rows else self._nothing
        return VarColumn(values, np.cumsum(lengths) - lengths, lengths, self._kind)
