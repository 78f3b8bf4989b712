"""Buffer of row ids in numbered slots, used by operators that delay rows."""

from __future__ import annotations

import numpy as np

from aiostream_data import _native
from aiostream_data.rows.id_arrays import Numbers
from aiostream_data.rows.row_ids import RowIds


class RowIdBuffer:
    """Row ids in numbered slots. Methods copy ids into the buffer and out of the buffer.

    Args:
        max_slots: Maximum number of row ids in the buffer.
    """

    def __init__(self, max_slots: int) -> None:
        self._max_slots = max_slots
        self._held = np.empty((0, 2), np.int64)

    @property
    def nbytes(self) -> int:
        """Allocated memory in bytes, including unused slots."""
        return self._held.nbytes

    @property
    def row_nbytes(self) -> int:
        """Size of one stored id in bytes."""
        return 8 * self._held.shape[1]

    def fill(self, first: int, ids: RowIds) -> None:
        """Store ids in the next free slots, starting at slot ``first``."""
        stop = first + len(ids)
        added = self._as_wide(ids)
        if stop > len(self._held):
            room = min(max(stop, 2 * len(self._held)), self._max_slots)
            grown = np.empty((room, self._held.shape[1]), np.int64)
            grown[:first] = self._held[:first]
            self._held = grown
        self._held[first:stop] = added

    def exchange(self, slots: Numbers, ids: RowIds) -> RowIds:
        """For each i in order, store id i in slot ``slots[i]`` in place of the old id. Return the replaced ids."""
        added = self._as_wide(ids)
        return RowIds(_native.exchange_rows(self._held, slots, added))

    def take(self, slots: Numbers) -> RowIds:
        """Return copies of the ids in the given slots."""
        return RowIds(_native.take_rows(self._held, slots))

    def _as_wide(self, ids: RowIds) -> Numbers:
        """Pad ids to the number of columns of the buffer. If the ids are wider, first widen the buffer."""
        columns = ids.padded(self._held.shape[1])
        if columns.shape[1] > self._held.shape[1]:
            self._held = RowIds(self._held).padded(columns.shape[1])
        return columns
