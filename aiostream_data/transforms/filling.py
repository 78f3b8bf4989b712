"""Lay pieces of rows one after another into rows of one width, and fill up what is left of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.records import Column, VarColumn

Counts = NDArray[np.int64]


def fill_rows(pieces: VarColumn, counts: Counts, width: int, fill: Any) -> NDArray[Any]:
    """Return a new array of shape (rows, width, ...): row i holds the next ``counts[i]`` pieces and then ``fill``.

    Args:
        pieces: In the order in which they are laid; those of one row are ``width`` long at most, together.
        counts: int64; they sum up to the number of pieces.
    """
    stops = np.cumsum(counts)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(pieces.lengths)])
    free = width - (sums[stops] - sums[stops - counts])
    # After the pieces of each row comes one more, out of a row of nothing but fill.
    filler = np.full((int(free.max(initial=0)), *pieces.values.shape[1:]), fill, pieces.values.dtype)
    starts = np.insert(pieces.starts, stops, 0)
    lengths = np.insert(pieces.lengths, stops, free)
    which = np.zeros(len(starts), np.int32)
    which[stops + np.arange(len(stops))] = 1
    values, _ = _native.compact_many([pieces.values, filler], which, starts, lengths)
    return values.reshape(len(counts), width, *values.shape[1:])


def as_pieces(column: Column) -> VarColumn:
    """Return rows that have an axis as a variable column over the same memory, or over a copy that is contiguous."""
    if isinstance(column, VarColumn):
        return column
    length = column.shape[1]
    rows = np.ascontiguousarray(column)
    starts = np.arange(len(column), dtype=np.int64) * length
    return VarColumn(
        rows.reshape(len(column) * length, *column.shape[2:]), starts, np.full(len(column), length, np.int64), "array"
    )


def joined(arrays: list[NDArray[Any]]) -> VarColumn:
    """Return arrays of one dtype that differ in their first axis alone as a variable column."""
    lengths = np.array(list(map(len, arrays)), np.int64)
    return VarColumn(np.concatenate(arrays), np.cumsum(lengths) - lengths, lengths, "array")
