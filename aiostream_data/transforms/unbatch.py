"""Split batch elements into rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import BatchShapeError
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, type_name
from aiostream_data.rows.columns import Column, VarColumn, object_array
from aiostream_data.rows.lineage import CutFrom, MadeOf, ids_of_split
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.records import Chunk, Columns, Items, concat
from aiostream_data.rows.row_ids import CUT, RowIds
from aiostream_data.rows.structure import LEAF, NULLABLE, StructureError, flatten, graft, structure_of
from aiostream_data.rows.text_arrays import BytesArray, TextArray
from aiostream_data.transforms.collate import column_of

Describe = Callable[[RowIds, int], str]
"""Function ``describe(ids, row)`` that returns the name of a row for error messages."""


def unbatch(chunk: Chunk, describe: Describe) -> Chunk:
    """Split each element along the first axis of its leaves into rows, as tf.data's ``unbatch`` does.

    The id of a row consists of the id of its element and the index in the element. If the element is a batch of rows,
    the id of the original row replaces the id of the element in the row id. The result is a Columns chunk if all rows
    have one layout. Rows of a single element may share the memory of the element. A RaggedArray splits into arrays of
    different lengths, and a BytesArray or TextArray into bytes or text. A list is split like an array, as in tf.data.

    Raises:
        BatchShapeError: A leaf has no first axis, or the first axes of an element's leaves differ in size.
    """
    return split_rows(chunk, describe)[0]


def split_rows(chunk: Chunk, describe: Describe) -> tuple[Chunk, list[int]]:
    """Split elements like :func:`unbatch`. Return the split rows and the number of rows per element."""
    if isinstance(chunk, Columns) and (whole := _split_dense(chunk)) is not None:
        sizes = [len(whole) // max(1, len(chunk))] * len(chunk)
        return _named(whole, chunk, sizes), sizes
    if isinstance(chunk, Items) and (alike := _split_alike(chunk)) is not None:
        return _named(alike[0], chunk, alike[1]), alike[1]
    parts = [
        _split_element(element, chunk.ids.row(row), partial(describe, chunk.ids, row))
        for row, element in enumerate(chunk.elements())
    ]
    sizes = list(map(len, parts))
    return (_named(concat(parts), chunk, sizes) if parts else Items([], chunk.ids)), sizes


def _named(rows: Chunk, elements: Chunk, sizes: list[int]) -> Chunk:
    """Set the ids and the lineage of rows that were split from elements."""
    index = np.arange(sum(sizes)) - np.repeat(np.cumsum(sizes, dtype=np.int64) - sizes, sizes)
    if elements.made_of is None:
        return rows.with_ids(rows.ids.with_pair(CUT, index))
    parts: list[RowIds] = []
    cut_from: list[MadeOf | None] = []
    for element, size in enumerate(sizes):
        own = elements.ids.row(element)
        made_of = elements.made_of[element]
        parts.append(ids_of_split(own, made_of, size))
        cut_from += [None if made_of is None else CutFrom(own, [made_of])] * size
    return rows.with_ids(RowIds.concat(parts).with_pair(CUT, index)).with_made_of(cut_from)


def _split_dense(chunk: Columns) -> Columns | None:
    """Split dense batches of one size by reshaping.

    Return None if the leaves have rows of variable length or differ in size.
    """
    sizes = {leaf.shape[1] if not isinstance(leaf, VarColumn) and leaf.ndim > 1 else -1 for leaf in chunk.leaves}
    if len(sizes) != 1 or -1 in sizes:
        return None
    size = sizes.pop()
    leaves = [np.array(leaf, order="C") for leaf in chunk.leaves if not isinstance(leaf, VarColumn)]
    split = tuple(leaf.reshape(len(chunk) * size, *leaf.shape[2:]) for leaf in leaves)
    return Columns(chunk.structure, split, chunk.ids.repeat(size))


def _split_alike(chunk: Items) -> tuple[Columns, list[int]] | None:
    """Split several elements at once if each leaf is an array, and the arrays differ only in their first axis.

    Return the rows and the number of rows per element, or None if the elements must be split one by one.
    """
    if len(chunk) < 2:
        return None
    structure = structure_of(chunk.values[0])
    if structure.has_classes and not all(map(structure.gives_back, chunk.values)):
        return None
    try:
        leaves = [chunk.values] if structure.is_leaf else structure.columns(chunk.values)
    except StructureError:
        return None
    if not leaves or not all(map(_are_alike, leaves)):
        return None
    sizes = list(map(len, leaves[0]))
    if any(list(map(len, arrays)) != sizes for arrays in leaves[1:]):
        return None
    ids = chunk.ids.take(np.repeat(np.arange(len(chunk)), sizes))
    return Columns(structure, tuple(map(np.concatenate, leaves)), ids), sizes


def _are_alike(arrays: Sequence[Any]) -> bool:
    """Return True if all values are arrays without objects that differ only in their first axis."""
    if any(type(array) is not np.ndarray or not array.ndim for array in arrays):
        return False
    first = arrays[0]
    is_plain = first.dtype.isnative and not first.dtype.hasobject
    return is_plain and all(array.dtype == first.dtype and array.shape[1:] == first.shape[1:] for array in arrays)


def _split_element(element: Any, ids: RowIds, where: Callable[[], str]) -> Columns:
    structure, leaves = flatten(element)
    columns = [_split_named(path, leaf, where) for path, leaf in zip(structure.paths(), leaves, strict=True)]
    sizes = [-1 if column is None else len(column) for column in columns]
    if not sizes or -1 in sizes or len(set(sizes)) > 1:
        listed = ", ".join(
            f"{path!r} has {'no first axis' if size < 0 else f'{size} rows'}"
            for path, size in zip(structure.paths(), sizes, strict=True)
        )
        raise BatchShapeError(
            f"cannot split {where()} into rows: {listed or 'it has no leaves'}. "
            "Return leaves with equal numbers of rows from map()."
        )
    found = tuple(column for column in columns if column is not None)
    split = Columns(structure, found, ids.repeat(sizes[0]))
    marks = [leaf.valid if isinstance(leaf, (BytesArray, TextArray)) else None for leaf in leaves]
    return split if all(each is None for each in marks) else _marked(split, marks)


def _marked(rows: Columns, marks: Sequence[NDArray[np.bool_] | None]) -> Columns:
    """Add the marks of rows with values to the leaves that have marks."""
    kinds = [NULLABLE if each is not None else LEAF for each in marks]
    columns = [part for leaf, each in zip(rows.leaves, marks, strict=True) for part in (leaf, each) if part is not None]
    return Columns(graft(rows.structure, kinds), tuple(columns), rows.ids)


def _split_named(path: str, leaf: Any, where: Callable[[], str]) -> Column | None:
    try:
        return _split_leaf(leaf)
    except NoNumpyFormError as error:
        name = type_name(type(leaf))
        raise BatchShapeError(
            f"cannot split {where()} into rows: {name} in {path!r} cannot become a dense numpy.ndarray: {error}"
        ) from error.__cause__


def _split_leaf(leaf: Any) -> Column | None:
    """Convert the rows inside a leaf to a column, or return None if the leaf has no first axis."""
    if isinstance(leaf, (BytesArray, TextArray)):
        return leaf.column()
    if isinstance(leaf, RaggedArray):
        return VarColumn(leaf.values, leaf.row_splits[:-1], leaf.row_lengths, "array")
    if isinstance(leaf, list):
        return _split_list(leaf)
    if isinstance(leaf, np.ndarray) and leaf.dtype == np.dtype(object):
        if leaf.ndim == 1 and len(leaf) and isinstance(column := column_of(leaf.tolist()), VarColumn):
            return column  # bytes and str become a variable column again
        return leaf if leaf.ndim else None
    array = None if isinstance(leaf, tuple) else array_of(leaf)
    return array if array is not None and array.ndim else None


def _split_list(leaf: list[Any]) -> Column:
    if leaf and (column := column_of(leaf)) is not None:
        return column
    try:
        array = array_of(leaf)
    except NoNumpyFormError:  # for example, lists of different lengths
        array = None
    return object_array(leaf) if array is None else array
