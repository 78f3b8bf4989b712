"""Build the arrays of packed rows: one array per leaf, and arrays of segments and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import BatchShapeError
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.collate import DescribeRow, as_arrays, as_stackable, without_marks
from aiostream_data.transforms.filling import as_pieces, fill_rows, joined
from aiostream_data.transforms.lengths import leaves_of
from aiostream_data.transforms.packing import Bin
from aiostream_data.transforms.padded_room import PaddedRoom
from aiostream_data.transforms.padding import LeafPadding, fill_value


def pack_rows(
    rows: Chunk,
    bins: Sequence[Bin],
    width: int,
    fields: Sequence[str] | None,
    padding: Any,
    describe: DescribeRow,
    room: PaddedRoom | None = None,
) -> list[NDArray[Any]]:
    """Return new arrays of shape (bins, width, ...): one array per packed leaf, then the segments and the positions.

    The arrays of segments and positions are int32, and 0 in the padding. The segment of a value is the number of its
    piece in the bin, counted from 1. The position of a value is its index in its piece, counted from 0.

    Args:
        rows: The row of each piece, one bin after another.
        width: Number of values in a packed row.
        fields: Names of the leaves to pack; None for all leaves.
        padding: Padding value: None for 0, one value for all leaves, or a dict from leaf name to value.
        describe: Function that returns the name of a row for error messages.
        room: Memory for one packed row.

    Raises:
        BatchShapeError: A leaf is not an array, or its rows differ in dtype or in an axis other than the first.
        PlanError: A leaf named in ``fields`` does not exist, or its dtype cannot represent the padding value.
        MemoryBudgetError: A packed row would exceed the memory limit.
    """
    leaves = leaves_of(as_stackable(without_marks(rows)), fields)
    pieces = [piece for packed in bins for piece in packed.pieces]
    starts = np.array([piece.start for piece in pieces], np.int64)
    sizes = np.array([piece.stop for piece in pieces], np.int64) - starts
    counts = np.array([len(packed.pieces) for packed in bins], np.int64)
    arrays: list[NDArray[Any]] = []
    for name, leaf in leaves.items():
        column = _as_column(name, leaf, describe)
        if room is not None:
            room.take(name, (width, *column.item_shape), column.dtype.itemsize, 0)
        cut = VarColumn(column.values, column.starts + starts, sizes, "array")
        fill = padding.get(name) if isinstance(padding, Mapping) else padding
        arrays.append(fill_rows(cut, counts, width, fill_value(LeafPadding(name, None, fill), column.values)))
    marks = [_laid(values, sizes, counts, width) for values in _segments_and_positions(sizes, counts)]
    return [*arrays, *marks]


def _segments_and_positions(sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> list[NDArray[np.int32]]:
    """Return the segment number and the position of each value, one piece after another."""
    stops = np.cumsum(counts)
    segments = np.arange(1, len(sizes) + 1) - np.repeat(stops - counts, counts)
    begins = np.cumsum(sizes) - sizes
    positions = np.arange(int(sizes.sum())) - np.repeat(begins, sizes)
    return [np.repeat(segments, sizes).astype(np.int32), positions.astype(np.int32)]


def _laid(
    values: NDArray[np.int32], sizes: NDArray[np.int64], counts: NDArray[np.int64], width: int
) -> NDArray[np.int32]:
    return fill_rows(VarColumn(values, np.cumsum(sizes) - sizes, sizes, "array"), counts, width, 0)


def _as_column(name: str, leaf: Column | list[Any], describe: DescribeRow) -> VarColumn:
    """Convert a leaf to a column of variable-length rows of kind ``array``."""
    if isinstance(leaf, list):
        return _joined(name, as_arrays(name, leaf, describe), describe)
    if isinstance(leaf, VarColumn) and leaf.kind == "array":
        return leaf
    if isinstance(leaf, np.ndarray) and leaf.ndim > 1:
        return as_pieces(leaf)
    raise _no_array(name, describe(0))


def _joined(name: str, found: list[NDArray[Any] | None], describe: DescribeRow) -> VarColumn:
    arrays: list[NDArray[Any]] = []
    for row, array in enumerate(found):
        if array is None or not array.ndim:
            raise _no_array(name, describe(row))
        arrays.append(array)
        first = arrays[0]
        if (array.dtype, array.shape[1:]) != (first.dtype, first.shape[1:]):
            raise BatchShapeError(
                f"cannot pack leaf {name!r}: {_words(first)} in {describe(0)} but {_words(array)} in {describe(row)}. "
                "Make the dtypes, and all axes after the first, equal in map()."
            )
    return joined(arrays)


def _no_array(name: str, where: str) -> BatchShapeError:
    return BatchShapeError(
        f"cannot pack leaf {name!r}: it is not an array in {where}. Name the array leaves with fields=."
    )


def _words(array: NDArray[Any]) -> str:
    return f"an array of {array.dtype}{list(array.shape[1:]) or ''}"
