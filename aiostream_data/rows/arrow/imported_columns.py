"""Columns of imported Arrow arrays that are not nested: numbers, dates, text, bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.arrow.arrow_forms import ArrowForm
from aiostream_data.rows.arrow.imported_rows import ArrowRows
from aiostream_data.rows.columns import Column, VarColumn, VarKind

_VIEW_NBYTES = 16
_INLINE_NBYTES = 12
_SHOWN_NBYTES = 20


class ArrowLeaf(NamedTuple):
    """One leaf of a chunk.

    Attributes:
        column: The rows. The content of missing rows is undefined; in a VarColumn, missing rows have length 0.
        valid: Array of booleans that is False for missing rows, or None if no row is missing.
    """

    column: Column
    valid: NDArray[np.bool_] | None


def flat_leaf(rows: ArrowRows, form: ArrowForm) -> ArrowLeaf:
    """Return the column of an array without children."""
    if form.family == "null":
        return ArrowLeaf(np.full(rows.length, None, object), np.zeros(rows.length, np.bool_))
    if form.family == "bool":
        return ArrowLeaf(rows.bits(1), rows.valid())
    if form.family == "dense":
        return ArrowLeaf(rows.items(1, form.dtype, rows.start, rows.length), rows.valid())
    if form.family == "int32":
        narrow = rows.items(1, np.dtype(np.int32), rows.start, rows.length)
        return ArrowLeaf(narrow.astype(np.int64).view(form.dtype), rows.valid())
    if form.family == "fixed_binary":
        return _fixed_binary_leaf(rows, form.size)
    return _view_leaf(rows, form) if form.family == "view" else _text_leaf(rows, form)


def variable_leaf(
    values: NDArray[np.generic],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kind: VarKind,
    valid: NDArray[np.bool_] | None,
) -> ArrowLeaf:
    """Return a leaf with rows of variable length. The length of missing rows is set to 0."""
    shown = lengths if valid is None else np.where(valid, lengths, 0)
    return ArrowLeaf(VarColumn(values, starts, shown, kind), valid)


def _fixed_binary_leaf(rows: ArrowRows, size: int) -> ArrowLeaf:
    values = rows.memory(1, rows.start * size, rows.length * size)
    starts = np.arange(rows.length, dtype=np.int64) * size
    return variable_leaf(values, starts, np.full(rows.length, size, np.int64), "bytes", rows.valid())


def _text_leaf(rows: ArrowRows, form: ArrowForm) -> ArrowLeaf:
    offsets = rows.offsets()
    values = rows.memory(2, 0, int(offsets[-1]))
    leaf = variable_leaf(values, offsets[:-1], np.diff(offsets), "str" if form.is_text else "bytes", rows.valid())
    return _checked_text(rows, leaf) if form.is_text else leaf


def _view_leaf(rows: ArrowRows, form: ArrowForm) -> ArrowLeaf:
    """Copy the rows of a view array, or its buffers if they are smaller than the rows."""
    views = rows.items(1, np.dtype(np.int32), 4 * rows.start, 4 * rows.length).reshape(-1, 4)
    valid = rows.valid()
    lengths = views[:, 0].astype(np.int64)
    if valid is not None:
        lengths[~valid] = 0
    buffers = _view_buffers(rows)
    which, starts = _view_places(rows, views, lengths, [len(buffer) for buffer in buffers])
    sources = [views.reshape(-1).view(np.uint8), *buffers]
    if int(lengths.sum()) <= sum(map(len, sources)):
        values, starts = _native.compact_many(sources, which, starts, lengths)
    else:  # rows share bytes
        begins = np.cumsum([0, *map(len, sources[:-1])], dtype=np.int64)
        values, starts = np.concatenate(sources), starts + begins[which]
    leaf = variable_leaf(values, starts, lengths, "str" if form.is_text else "bytes", valid)
    return _checked_text(rows, leaf) if form.is_text else leaf


def _view_buffers(rows: ArrowRows) -> list[NDArray[np.uint8]]:
    last = len(rows.node.buffers) - 1
    sizes = rows.items(last, np.dtype(np.int64), 0, last - 2).tolist()
    if min(sizes, default=0) < 0:
        raise rows.error(f"a data buffer has {min(sizes)} bytes")
    return [rows.memory(2 + i, 0, size) for i, size in enumerate(sizes)]


def _view_places(
    rows: ArrowRows, views: NDArray[np.int32], lengths: NDArray[np.int64], sizes: list[int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the buffer and the position of each row. Buffer 0 contains the views themselves."""
    if (negative := np.flatnonzero(lengths < 0)).size:
        raise rows.error(f"the length {lengths[negative[0]]} is negative", int(negative[0]))
    which = np.zeros(len(lengths), np.int32)
    starts = np.arange(len(lengths), dtype=np.int64) * _VIEW_NBYTES + 4
    long = np.flatnonzero(lengths > _INLINE_NBYTES)
    index, offset = views[long, 2].astype(np.int64), views[long, 3].astype(np.int64)
    inside = (index >= 0) & (index < len(sizes))
    size = np.array([*sizes, 0], np.int64)[np.where(inside, index, -1)]
    inside &= (offset >= 0) & (offset <= size - lengths[long])
    if not inside.all():
        bad = int(np.argmin(inside))
        found = f"{lengths[long[bad]]} bytes from byte {offset[bad]} of data buffer {index[bad]}"
        raise rows.error(f"the view of {found} is outside the {len(sizes)} data buffers", int(long[bad]))
    which[long], starts[long] = index + 1, offset
    return which, starts


def _checked_text(rows: ArrowRows, leaf: ArrowLeaf) -> ArrowLeaf:
    column = leaf.column
    assert isinstance(column, VarColumn)
    if column.values.view(np.int8).min(initial=0) >= 0:
        return leaf  # ASCII, as most texts are; this check takes far less time than the other one
    bad = _native.first_invalid_utf8(column.values, column.starts, column.lengths)
    if bad >= 0:
        start, length = int(column.starts[bad]), int(column.lengths[bad])
        found = column.values[start : start + min(length, _SHOWN_NBYTES)].tobytes()
        raise rows.error(f"the text {found!r} is not valid UTF-8. Cast the column to binary to read it as bytes", bad)
    return leaf
