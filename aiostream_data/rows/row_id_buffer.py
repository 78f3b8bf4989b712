"""Row ids in numbered slots, as orders that hold rows back keep them: copied in and copied out."""

from __future__ import annotations

import numpy as np

from aiostream_data import _native
from aiostream_data.rows.row_ids import Numbers, RowIds


class RowIdBuffer:
    """Ids of rows in numbered slots, copied in and copied out.

    Args:
        max_slots: Most slots that will be used.
    """

    def __init__(self, max_slots: int) -> None:
        self._max_slots = max_slots
        self._held = np.empty((0, 2), np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, unused slots included."""
        return self._held.nbytes

    @property
    def row_nbytes(self) -> int:
        """Bytes that the id of one row takes in here."""
        return 8 * self._held.shape[1]

    def fill(self, first: int, ids: RowIds) -> None:
        """Put ids into the next free slots, from ``first`` on."""
        stop = first + len(ids)
        added = self._as_wide(ids)
        if stop > len(self._held):
            room = min(max(stop, 2 * len(self._held)), self._max_slots)
            grown = np.empty((room, self._held.shape[1]), np.int64)
            grown[:first] = self._held[:first]
            self._held = grown
        self._held[first:stop] = added

    def exchange(self, slots: Numbers, ids: RowIds) -> RowIds:
        """For each i in order: return what slot ``slots[i]`` holds, and put id i in its place."""
        added = self._as_wide(ids)
        return RowIds(_native.exchange_rows(self._held, slots, added))

    def take(self, slots: Numbers) -> RowIds:
        """Return copies of the ids in these slots."""
        return RowIds(_native.take_rows(self._held, slots))

    def _as_wide(self, ids: RowIds) -> Numbers:
        """Return ids as wide as the buffer, after widening the buffer where needed."""
        columns = ids.padded(self._held.shape[1])
        if columns.shape[1] > self._held.shape[1]:
            self._held = RowIds(self._held).padded(columns.shape[1])
        return columns
