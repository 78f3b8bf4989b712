"""Concatenate pieces of data into rows of fixed width, with padding at the end of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.columns import Column, VarColumn

Counts = NDArray[np.int64]


def fill_rows(pieces: VarColumn, counts: Counts, width: int, fill: Any) -> NDArray[Any]:
    """Return a new array of shape (rows, width, ...) that contains the pieces.

    Row i consists of the next ``counts[i]`` pieces, followed by padding with the value ``fill``.

    Args:
        pieces: The pieces to concatenate, in order. The pieces of one row have a total length of at most ``width``.
        counts: Number of pieces per row, int64. The sum of ``counts`` is the total number of pieces.
        width: Number of values in an output row.
    """
    stops = np.cumsum(counts)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(pieces.lengths)])
    free = width - (sums[stops] - sums[stops - counts])
    # Append one piece of padding to each row, taken from an array of fill values.
    filler = np.full((int(free.max(initial=0)), *pieces.values.shape[1:]), fill, pieces.values.dtype)
    starts = np.insert(pieces.starts, stops, 0)
    lengths = np.insert(pieces.lengths, stops, free)
    which = np.zeros(len(starts), np.int32)
    which[stops + np.arange(len(stops))] = 1
    values, _ = _native.compact_many([pieces.values, filler], which, starts, lengths)
    return values.reshape(len(counts), width, *values.shape[1:])


def as_pieces(column: Column) -> VarColumn:
    """Convert a column to a column of variable-length rows; each row must have at least one axis.

    Copy only non-contiguous memory.
    """
    if isinstance(column, VarColumn):
        return column
    length = column.shape[1]
    rows = np.ascontiguousarray(column)
    starts = np.arange(len(column), dtype=np.int64) * length
    return VarColumn(
        rows.reshape(len(column) * length, *column.shape[2:]), starts, np.full(len(column), length, np.int64), "array"
    )


def joined(arrays: list[NDArray[Any]]) -> VarColumn:
    """Concatenate arrays of one dtype, which differ only in their first axis, to a column of variable-length rows."""
    lengths = np.array(list(map(len, arrays)), np.int64)
    return VarColumn(np.concatenate(arrays), np.cumsum(lengths) - lengths, lengths, "array")
