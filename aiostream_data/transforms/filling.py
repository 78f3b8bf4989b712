"""Concatenate pieces of data into rows of fixed width, with padding at the end of each row."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.filled_arrays import filled

Counts = NDArray[np.int64]

LONG_ARRAY_NBYTES: Final = 2 << 10
"""Minimum mean size of arrays in bytes for which copying each array takes longer than looking it up."""

LONG_PADDING_NBYTES: Final = 1 << 20
"""Minimum padding of a row in bytes for which rows are padded one by one, without an array of padding values."""


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
    filler = _filler(pieces.values, int(free.max(initial=0)), fill)
    pads = stops + np.arange(len(stops))  # one piece of padding behind the pieces of each row
    is_piece = np.ones(len(pieces) + len(stops), np.bool_)
    is_piece[pads] = False
    starts, lengths = np.zeros(len(is_piece), np.int64), np.empty(len(is_piece), np.int64)
    starts[is_piece], lengths[is_piece], lengths[pads] = pieces.starts, pieces.lengths, free
    values, _ = _native.compact_many([pieces.values, filler], (~is_piece).astype(np.int32), starts, lengths)
    return values.reshape(len(counts), width, *values.shape[1:])


def pad_pieces(pieces: VarColumn, width: int, fill: Any) -> NDArray[Any]:
    """Return a new array of shape (rows, width, ...) with one row per piece, padded with the value ``fill``."""
    return _padded([pieces.values], np.zeros(1, np.int32), pieces.starts, pieces.lengths, width, fill)


def pad_arrays(arrays: list[NDArray[Any]], width: int, fill: Any) -> NDArray[Any]:
    """Return a new array of shape (rows, width, ...) with one row per array, padded with the value ``fill``.

    Args:
        arrays: Arrays of one dtype that differ only in their first axis, of length ``width`` or less.
    """
    if sum(array.nbytes for array in arrays) < LONG_ARRAY_NBYTES * len(arrays):
        return pad_pieces(joined(arrays), width, fill)
    lengths = np.array(list(map(len, arrays)), np.int64)
    return _padded(arrays, np.arange(len(arrays), dtype=np.int32), np.zeros(1, np.int64), lengths, width, fill)


def _padded(
    sources: list[NDArray[Any]], which: NDArray[np.int32], starts: Counts, lengths: Counts, width: int, fill: Any
) -> NDArray[Any]:
    """Return rows with one piece of an array each, and one piece of padding behind it."""
    count = len(lengths)
    free = width - int(lengths.min(initial=width))
    if free * sources[0].itemsize * math.prod(sources[0].shape[1:]) >= LONG_PADDING_NBYTES:
        return _padded_one_by_one(sources, which, starts, lengths, width, fill)
    sources_of, starts_of, lengths_of = (np.empty((count, 2), dtype) for dtype in (np.int32, np.int64, np.int64))
    sources_of[:, 0], sources_of[:, 1] = which, len(sources)
    starts_of[:, 0], starts_of[:, 1] = starts, 0
    lengths_of[:, 0], lengths_of[:, 1] = lengths, width - lengths
    filler = _filler(sources[0], free, fill)
    columns = sources_of.reshape(-1), starts_of.reshape(-1), lengths_of.reshape(-1)
    values, _ = _native.compact_many([*sources, filler], *columns)
    return values.reshape(count, width, *values.shape[1:])


def _padded_one_by_one(
    sources: list[NDArray[Any]], which: NDArray[np.int32], starts: Counts, lengths: Counts, width: int, fill: Any
) -> NDArray[Any]:
    """Return the same rows as :func:`_padded`. The function needs no memory for the padding of the longest row."""
    padded = np.empty((len(lengths), width, *sources[0].shape[1:]), sources[0].dtype)
    pieces = np.broadcast_arrays(which, starts, lengths)
    for row, (source, start, length) in zip(padded, zip(*(each.tolist() for each in pieces), strict=True), strict=True):
        row[:length] = sources[source][start : start + length]
        row[length:] = fill
    return padded


def _filler(like: NDArray[Any], length: int, fill: Any) -> NDArray[Any]:
    return filled((length, *like.shape[1:]), fill, like.dtype)


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
