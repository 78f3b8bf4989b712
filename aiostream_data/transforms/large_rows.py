"""Hold long rows that differ in length in numbered slots, each row in memory of its own.

An arena costs nothing per row, but holds up to twice its rows, and more while it is packed. For rows of
many kilobytes that is most of a memory limit, while an allocation per row is cheap beside its copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.records import VarColumn

MIN_NBYTES = 4 << 10
"""Mean bytes per row from which on this pays."""


def are_large(rows: VarColumn) -> bool:
    """True when rows like these are better held one by one."""
    return len(rows) > 0 and rows.nbytes >= MIN_NBYTES * len(rows)


class LargeRowSlots:
    """A column of long rows; see :class:`~.slots.SlotStore`."""

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
