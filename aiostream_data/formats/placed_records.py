"""Columns of records that know the line and the byte offset of each record, for error messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import VarColumn

Places: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Line of each record, starting at 1, or 0 if it is unknown; and byte offset of each record in its stream."""

_PLACE_NBYTES = 16


class PlacedColumn(VarColumn):
    """Base class of columns whose records have known places.

    A column that is gathered from several such columns is a :class:`PlacedRecords`.
    """

    __slots__ = ()

    def places(self) -> Places:
        """Return the places of all records."""
        raise NotImplementedError

    def place_of(self, row: int) -> tuple[int | None, int]:
        """Return the line of a record, or None if unknown, and its byte offset in the stream."""
        raise NotImplementedError

    def gathered(
        self,
        rows: VarColumn,
        parts: Sequence[VarColumn],
        picked: Callable[[list[NDArray[np.int64]]], NDArray[np.int64]],
    ) -> VarColumn:
        places = [found for part in parts if (found := _places_of(part)) is not None]
        if len(places) < len(parts):
            return rows
        return PlacedRecords(rows, picked([lines for lines, _ in places]), picked([offsets for _, offsets in places]))


def _places_of(column: VarColumn) -> Places | None:
    if not len(column):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return column.places() if isinstance(column, PlacedColumn) else None


class PlacedRecords(PlacedColumn):
    """A column of records of several streams, with the place of each record.

    Attributes:
        lines, offsets: See :data:`Places`.
    """

    __slots__ = ("lines", "offsets")

    lines: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def __init__(self, column: VarColumn, lines: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        super().__init__(column.values, column.starts, column.lengths, column.kind)
        object.__setattr__(self, "lines", lines)
        object.__setattr__(self, "offsets", offsets)

    def __reduce__(self) -> tuple[object, ...]:
        column = VarColumn(self.values, self.starts, self.lengths, self.kind)
        return PlacedRecords, (column, self.lines, self.offsets)

    @property
    def nbytes(self) -> int:
        return VarColumn(self.values, self.starts, self.lengths, self.kind).nbytes + _PLACE_NBYTES * len(self)

    def places(self) -> Places:
        return self.lines, self.offsets

    def place_of(self, row: int) -> tuple[int | None, int]:
        return int(self.lines[row]) or None, int(self.offsets[row])

    def slice(self, start: int, stop: int) -> PlacedRecords:
        return PlacedRecords(VarColumn.slice(self, start, stop), self.lines[start:stop], self.offsets[start:stop])

    def take(self, rows: NDArray[np.int64]) -> PlacedRecords:
        return PlacedRecords(VarColumn.take(self, rows), self.lines[rows], self.offsets[rows])
