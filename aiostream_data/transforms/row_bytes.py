"""Serialize single rows to bytes and back: columns by their layout, plain Python elements with pickle.

Unpickling is safe here. Only bytes that the current process pickled and stored in an unnamed file are unpickled; no
other process has the file open. The pickled bytes contain only built-in and NumPy types, which unpickle without running
user code.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.text_arrays import BytesArray, TextArray

Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_SCALARS = frozenset({bytes, bytearray, str, int, float, bool, complex, type(None)})


class ColumnBytes:
    """Serializer for rows of one layout.

    The bytes of a row contain its dense leaves, the lengths of its variable-length leaves, and the values of these
    leaves. The lengths are omitted if they can be computed from the size of the row.

    Args:
        example: A chunk of this layout, for which :func:`has_bytes` is True. The serializer does not keep a reference
            to the chunk.
    """

    def __init__(self, example: Columns) -> None:
        self._structure = example.structure
        self._examples = tuple(_without_rows(leaf) for leaf in example.leaves)
        variable = [leaf for leaf in self._examples if isinstance(leaf, VarColumn)]
        self._widths = [_width(leaf) for leaf in self._examples]
        self._writes_lengths = len(variable) > 1 or any(_width(leaf) == 0 for leaf in variable)
        self._variable = len(variable)
        self._head_nbytes = 8 * len(variable) * self._writes_lengths + sum(
            width for width, leaf in zip(self._widths, self._examples, strict=True) if not isinstance(leaf, VarColumn)
        )

    def packed(self, chunk: Columns) -> tuple[Bytes, Numbers]:
        """Return the concatenated bytes of the rows, and the size of each row in bytes."""
        rows = len(chunk)
        dense = [(_raw(leaf), width) for leaf, width in self._dense(chunk.leaves)]
        variable = [(leaf, width) for leaf, width in self._of_leaves(chunk.leaves) if isinstance(leaf, VarColumn)]
        if self._writes_lengths:
            lengths = np.stack([leaf.lengths for leaf, _ in variable], axis=1)
            dense.append((_raw(lengths), 8 * len(variable)))
        spans = [(values, width * np.arange(rows), np.full(rows, width)) for values, width in dense]
        spans += [(_raw(leaf.values), leaf.starts * width, leaf.lengths * width) for leaf, width in variable]
        if not spans:
            return np.empty(0, np.uint8), np.zeros(rows, np.int64)
        starts, lengths = (np.stack([span[part] for span in spans], axis=1) for part in (1, 2))
        which = np.tile(np.arange(len(spans), dtype=np.int32), rows)
        values, _ = _native.compact_many([span[0] for span in spans], which, starts.ravel(), lengths.ravel())
        return values, lengths.sum(axis=1)

    def unpacked(self, values: Bytes, lengths: Numbers) -> tuple[Column, ...]:
        """Deserialize concatenated rows and return their columns.

        ``lengths`` contains the size of each row in bytes.
        """
        starts = np.cumsum(lengths) - lengths
        leaf_lengths = iter(self._variable_nbytes(values, starts, lengths).T)
        place, tail = starts, starts + self._head_nbytes
        leaves: list[Column] = []
        for example, width in zip(self._examples, self._widths, strict=True):
            if isinstance(example, VarColumn):
                rows = next(leaf_lengths)
                leaves.append(_variable_leaf(example, values, tail, rows, width))
                tail = tail + rows * width
            else:
                leaves.append(_dense_leaf(example, values, place, width))
                place = place + width
        return tuple(leaves)

    def chunk(self, values: Bytes, lengths: Numbers, ids: RowIds, made_of: Any) -> Columns:
        """Deserialize concatenated rows and return a chunk. ``lengths`` contains the size of each row in bytes."""
        return Columns(self._structure, self.unpacked(values, lengths), ids, None, made_of)

    def _variable_nbytes(self, values: Bytes, starts: Numbers, lengths: Numbers) -> Numbers:
        """Return the row lengths of each variable-length leaf, as int64 of shape (rows, variable-length leaves)."""
        if self._writes_lengths:
            at = starts + self._head_nbytes - 8 * self._variable
            table, _ = _native.compact(values, at, np.full(len(starts), 8 * self._variable))
            return table.view(np.int64).reshape(-1, self._variable)
        widths = [width for leaf, width in self._of_leaves(self._examples) if isinstance(leaf, VarColumn)]
        return ((lengths - self._head_nbytes) // widths[0])[:, None] if widths else np.empty((len(starts), 0), np.int64)

    def _of_leaves(self, leaves: Sequence[Column]) -> list[tuple[Column, int]]:
        return list(zip(leaves, self._widths, strict=True))

    def _dense(self, leaves: Sequence[Column]) -> list[tuple[NDArray[Any], int]]:
        return [(leaf, width) for leaf, width in self._of_leaves(leaves) if not isinstance(leaf, VarColumn) and width]


def has_bytes(chunk: Chunk) -> bool:
    """Return True if rows of this layout can be serialized, because no column contains object references."""
    return isinstance(chunk, Columns) and not any(_has_references(leaf) for leaf in chunk.leaves)


def _has_references(leaf: Column) -> bool:
    return bool(leaf.dtype.hasobject) or leaf.dtype.kind == "T"


def _without_rows(leaf: Column) -> Column:
    if not isinstance(leaf, VarColumn):
        return np.empty((0, *leaf.shape[1:]), leaf.dtype)
    nothing = np.empty(0, np.int64)
    return VarColumn(np.empty((0, *leaf.item_shape), leaf.dtype), nothing, nothing, leaf.kind)


def _width(leaf: Column) -> int:
    """Return the size in bytes of one row of a dense column, or of one value of a variable-length column."""
    shape = leaf.item_shape if isinstance(leaf, VarColumn) else leaf.shape[1:]
    return leaf.dtype.itemsize * math.prod(shape)


def _raw(array: NDArray[Any]) -> Bytes:
    """Return the bytes of an array. The result is a view if the array is contiguous."""
    if not array.nbytes:
        return np.empty(0, np.uint8)
    flat: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat


def _dense_leaf(example: NDArray[Any], values: Bytes, starts: Numbers, width: int) -> NDArray[Any]:
    shape = (len(starts), *example.shape[1:])
    if not width:
        return np.empty(shape, example.dtype)
    rows, _ = _native.compact(values, starts, np.full(len(starts), width))
    return rows.view(example.dtype).reshape(shape)


def _variable_leaf(example: VarColumn, values: Bytes, starts: Numbers, lengths: Numbers, width: int) -> VarColumn:
    found, _ = _native.compact(values, starts, lengths * width)
    shape = (int(lengths.sum()), *example.item_shape)
    array = found.view(example.dtype).reshape(shape) if width else np.empty(shape, example.dtype)
    return VarColumn(array, np.cumsum(lengths) - lengths, np.ascontiguousarray(lengths), example.kind)


def element_bytes(element: Any) -> bytes | None:
    """Pickle an element.

    Return None unless the element consists of dicts, tuples, lists, arrays, numbers, bytes and str.
    """
    return pickle.dumps(element, protocol=5) if _is_plain(element) else None


def element_of(data: memoryview) -> Any:
    """Unpickle an element that was pickled by :func:`element_bytes`."""
    return pickle.loads(data)  # pickled by this process; its checksum was verified


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is dict:
        return all(map(_is_plain, value.keys())) and all(map(_is_plain, value.values()))
    if kind is tuple or kind is list:
        return all(map(_is_plain, value))
    if kind is np.ndarray:
        return not _has_references(value)
    if kind is RaggedArray:
        return type(value.values) is np.ndarray and not _has_references(value.values)
    if kind is BytesArray or kind is TextArray:
        return True
    return isinstance(value, np.generic) and kind.__module__ == "numpy" and not value.dtype.hasobject
