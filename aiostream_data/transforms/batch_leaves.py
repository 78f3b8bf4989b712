"""Make the leaves of a batch from the columns of a chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.ragged import RaggedArray, trusted_ragged
from aiostream_data.rows.records import Columns
from aiostream_data.rows.text_arrays import WITH_MISSING, Strings
from aiostream_data.transforms.string_leaves import leaf_of_strings, missing_value, string_leaf

DescribeRow = Callable[[int], str]
"""Function that returns the name of a row for error messages."""


def batch_leaf(column: Column, copy: bool = True, strings: Strings = "objects", pool: LendsMemory | None = None) -> Any:
    """Convert a column to a leaf of a batch element (one array per leaf).

    Rows of type bytes or str become an object array, or the form ``strings``. Variable-length rows of kind ``array``
    always become a RaggedArray. Types therefore never depend on the lengths in the data.

    Args:
        copy: False if nothing else uses the memory of ``column``.
        pool: Pool of memory for large values of variable-length columns.
    """
    if not isinstance(column, VarColumn):
        return np.array(column, order="C", copy=True) if copy else column
    if column.kind == "array":
        return _ragged(column, copy, pool)
    return string_leaf(column, strings, copy=copy, pool=pool)


def batch_element(
    chunk: Columns,
    describe: DescribeRow,
    copy: bool = True,
    strings: Strings = "objects",
    pool: LendsMemory | None = None,
) -> Any:
    """Stack the rows of a chunk into one element, with one leaf per column. See :func:`batch_leaf`.

    A nullable leaf of bytes or text keeps its missing values if the form ``strings`` has them. All other leaves need a
    value in each row.

    Raises:
        BatchShapeError: A value is missing. The error names the leaf and the record.
    """
    if not chunk.structure.has_nullable and (strings == "objects" or not has_objects(chunk)):
        return chunk.structure.unflatten([batch_leaf(leaf, copy, strings, pool) for leaf in chunk.leaves])
    plain = chunk.structure.plain
    leaves = []
    for path, (column, valid) in zip(plain.paths(), _with_marks(chunk), strict=True):
        of_strings = None
        if strings != "objects" and _is_of_objects(column):
            of_strings = leaf_of_strings(path, column.tolist(), describe, strings)
        if of_strings is not None:
            leaves.append(of_strings)
        elif valid is None or valid.all():
            leaves.append(batch_leaf(column, copy, strings, pool))
        elif isinstance(column, VarColumn) and column.kind != "array" and strings in WITH_MISSING:
            leaves.append(string_leaf(column, strings, valid, copy=copy, pool=pool))
        else:
            raise missing_value(path, describe(int(np.flatnonzero(~valid)[0])))
    return plain.unflatten(leaves)


def has_objects(chunk: Columns) -> bool:
    """Return True if the rows of a leaf are Python objects, which may be bytes or text."""
    return any(map(_is_of_objects, chunk.leaves))


def _is_of_objects(column: Column) -> TypeGuard[NDArray[np.object_]]:
    return not isinstance(column, VarColumn) and column.dtype.hasobject and column.ndim == 1


def _with_marks(chunk: Columns) -> Iterator[tuple[Column, NDArray[np.bool_] | None]]:
    """Yield the column of each leaf of the elements, and the marks of its rows with values if it is nullable."""
    leaves = iter(chunk.leaves)
    for is_nullable in chunk.structure.nullable_leaves():
        column = next(leaves)
        marks: Any = next(leaves) if is_nullable else None
        yield column, marks


def ragged_leaves(
    column: VarColumn, bounds: Sequence[tuple[int, int]], pool: LendsMemory | None = None
) -> list[RaggedArray]:
    """Convert adjacent ranges of rows of kind ``array`` to one leaf per range. All leaves share one buffer.

    Args:
        pool: Pool of memory for large values.
    """
    first = bounds[0][0]
    whole = _ragged(column.slice(first, bounds[-1][1]), copy=True, pool=pool)
    values, splits = whole.values, whole.row_splits
    edges = splits[[row - first for pair in bounds for row in pair]].tolist()
    return [
        trusted_ragged(values[begin:end], splits[start - first : stop - first + 1] - begin)
        for (start, stop), begin, end in zip(bounds, edges[::2], edges[1::2], strict=True)
    ]


def _ragged(column: VarColumn, copy: bool, pool: LendsMemory | None) -> RaggedArray:
    packed = column if not copy and column.is_packed else column.compact(pool)
    return trusted_ragged(packed.values, np.append(packed.starts, len(packed.values)))
