"""Columns of imported Arrow lists and dictionary-encoded arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.arrow.arrow_forms import ArrowForm
from aiostream_data.rows.arrow.imported_columns import ArrowLeaf, variable_leaf
from aiostream_data.rows.arrow.imported_rows import MAX_NBYTES, ArrowRows, checked
from aiostream_data.rows.columns import VarColumn

ReadLeaf: TypeAlias = Callable[[ArrowRows], ArrowLeaf]


def list_leaf(rows: ArrowRows, form: ArrowForm, read: ReadLeaf) -> ArrowLeaf:
    """Return the column of a list array.

    Args:
        read: Function that returns the column of the items.

    Raises:
        ArrowDataError: An offset is invalid, or a list contains a missing item.
    """
    if form.family == "fixed_list":
        return _fixed_list_leaf(rows, form.size, read)
    found, starts, lengths = list_places(rows)
    values, present = _dense(read(found))
    leaf = variable_leaf(values, starts, lengths, "array", rows.valid())
    _check_items(rows, present, leaf)
    return leaf


def list_places(rows: ArrowRows) -> tuple[ArrowRows, NDArray[np.int64], NDArray[np.int64]]:
    """Return the items of all lists. For each list, also return the index of its first item, and its length.

    A map is read as a list of entries.

    Raises:
        ArrowDataError: An offset or a length is invalid.
    """
    form = rows.form
    if form.family == "list_view":
        starts, lengths = _list_views(rows, form, rows.valid())
        return rows.list_items(0, rows.node.children[0].length), starts, lengths
    if form.family == "fixed_list":
        items = _items_of_fixed_lists(rows, form.size)
        return items, np.arange(rows.length, dtype=np.int64) * form.size, np.full(rows.length, form.size, np.int64)
    offsets = rows.offsets()
    first, stop = int(offsets[0]), int(offsets[-1])
    return rows.list_items(first, stop - first), offsets[:-1] - first if first else offsets[:-1], np.diff(offsets)


def _items_of_fixed_lists(rows: ArrowRows, size: int) -> ArrowRows:
    return rows.list_items(rows.start * size, rows.length * size)


def _list_views(
    rows: ArrowRows, form: ArrowForm, valid: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    starts = rows.items(1, form.dtype, rows.start, rows.length).astype(np.int64, copy=False)
    lengths = rows.items(2, form.dtype, rows.start, rows.length).astype(np.int64, copy=False)
    if valid is not None:
        starts, lengths = np.where(valid, starts, 0), np.where(valid, lengths, 0)
    size = rows.node.children[0].length
    inside = (starts >= 0) & (lengths >= 0) & (starts <= size - lengths)
    if not inside.all():
        bad = int(np.argmin(inside))
        raise rows.error(f"{lengths[bad]} items from item {starts[bad]} are outside the {size} items", bad)
    return starts, lengths


def _check_items(rows: ArrowRows, valid: NDArray[np.bool_] | None, leaf: ArrowLeaf) -> None:
    """Raise if a list that is not missing contains a missing item."""
    if valid is None:
        return
    column = leaf.column
    assert isinstance(column, VarColumn)
    missing = np.cumsum(np.concatenate([[0], ~valid]))
    bad = missing[column.starts + column.lengths] != missing[column.starts]
    if bad.any():
        raise _missing_item(rows, int(np.argmax(bad)))


def _missing_item(rows: ArrowRows, row: int) -> Exception:
    return rows.error("the list contains a missing item. Fill missing items before reading", row)


def _fixed_list_leaf(rows: ArrowRows, size: int, read: ReadLeaf) -> ArrowLeaf:
    values, present = _dense(read(_items_of_fixed_lists(rows, size)))
    valid = rows.valid()
    row_nbytes = size * math.prod(values.shape[1:]) * values.itemsize
    if row_nbytes > MAX_NBYTES:
        raise rows.error(f"a row has {row_nbytes} bytes, more than any memory")
    if present is not None:
        complete = present.reshape(rows.length, size).all(axis=1)
        if valid is not None:
            complete |= ~valid
        if not complete.all():
            raise _missing_item(rows, int(np.argmin(complete)))
    return ArrowLeaf(values.reshape(rows.length, size, *values.shape[1:]), valid)


def _dense(items: ArrowLeaf) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return the items of lists, and which items are present. Missing dates and times become ``NaT``."""
    values, present = items
    assert isinstance(values, np.ndarray)  # check_type() rejects other items
    if present is None or values.dtype.kind not in "mM" or values.ndim > 1:
        return values, present
    return np.where(present, values, np.array("NaT", values.dtype)), None


def decoded_leaf(rows: ArrowRows, read: ReadLeaf) -> ArrowLeaf:
    """Return the values of a dictionary-encoded array.

    Raises:
        ArrowDataError: An index is outside the dictionary.
    """
    values = dictionary_rows(rows)
    entries = read(values)
    valid, indices = rows.valid(), decoded_indices(rows)
    if entries.valid is not None:
        found = entries.valid[indices] if len(values) else np.zeros(rows.length, np.bool_)
        valid = found if valid is None else valid & found
    column = entries.column
    if isinstance(column, VarColumn):
        taken = column.take(indices) if len(values) else VarColumn(column.values, indices, indices, column.kind)
        return variable_leaf(taken.values, taken.starts, taken.lengths, column.kind, valid)
    dense = column[indices] if len(values) else np.zeros((rows.length, *column.shape[1:]), column.dtype)
    return ArrowLeaf(dense, valid)


def dictionary_rows(rows: ArrowRows) -> ArrowRows:
    """Return the entries of the dictionary of an array.

    Raises:
        ArrowDataError: The numbers, buffers or children of the dictionary are invalid.
    """
    assert rows.schema.dictionary is not None
    assert rows.node.dictionary is not None
    schema, node = rows.schema.dictionary, rows.node.dictionary
    return checked(ArrowRows(rows.path, schema, node, rows.owner, node.offset, node.length, 0, "dictionary entry"))


def decoded_indices(rows: ArrowRows) -> NDArray[np.int64]:
    """Return the indices of the rows in a dictionary; 0 for missing rows.

    Raises:
        ArrowDataError: An index is outside the dictionary.
    """
    assert rows.node.dictionary is not None
    valid, size = rows.valid(), rows.node.dictionary.length
    given = rows.items(1, rows.form.dtype, rows.start, rows.length)
    used = given if valid is None else np.where(valid, given, given.dtype.type(0))
    outside = (used < 0) | (used >= size)
    if valid is not None:
        outside &= valid
    if outside.any():
        row = int(np.argmax(outside))
        raise rows.error(f"the index {used[row]} is outside a dictionary of {size} entries", row)
    return used.astype(np.int64, copy=False)
