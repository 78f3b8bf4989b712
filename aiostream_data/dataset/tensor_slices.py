"""Plan node of ``Dataset.from_tensor_slices``: arrays, columns of bytes and text, and data in Arrow's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.plan.sources import TensorSlices
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, type_name
from aiostream_data.rows.columns import Column, VarColumn, VarKind, concat_column
from aiostream_data.rows.pandas_series import NumbersWithMissing, is_series, leaf_of_series
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.structure import LEAF, NULLABLE, Structure, flatten, graft
from aiostream_data.rows.text_arrays import BytesArray, TextArray
from aiostream_data.rows.text_lists import nested_text


def tensor_slices(tensors: Any) -> TensorSlices:
    """Return the plan node of ``from_tensor_slices``.

    Raises:
        PlanError: An array has no first axis, or the lengths of the first axes differ.
    """
    outer, leaves = flatten(tensors)
    if not leaves:
        raise PlanError("from_tensor_slices() needs at least one array")
    parts = [sliced_leaf(leaf, path, leaves) for path, leaf in zip(outer.paths(), leaves, strict=True)]
    structure = graft(outer, [part for part, _ in parts])
    columns = tuple(column for _, of_leaf in parts for column in of_leaf)
    if not columns:
        raise PlanError("from_tensor_slices() needs at least one array")
    _check_lengths(structure, columns)
    return TensorSlices(structure=structure, leaves=columns, rows=len(columns[0]))


def sliced_leaf(leaf: Any, path: str, leaves: Sequence[Any] = ()) -> tuple[Structure, list[Column]]:
    """Return the structure of a row of a leaf, and its columns.

    Args:
        path: Name of the leaf, for error messages.
        leaves: All leaves, to suggest a remedy.
    """
    if is_series(leaf):
        leaf = leaf_of_series(leaf)
    if isinstance(leaf, NumbersWithMissing):
        return NULLABLE, [leaf.values, leaf.valid]
    if isinstance(leaf, (BytesArray, TextArray)):
        column = leaf.column()
        return (LEAF, [column]) if leaf.valid is None else (NULLABLE, [column, leaf.valid])
    if isinstance(leaf, RaggedArray):
        return LEAF, [VarColumn(_read_only(leaf.values), leaf.row_splits[:-1], leaf.row_lengths, "array")]
    if _is_arrow(leaf):
        return _of_arrow(leaf)
    if (strings := _string_column(leaf)) is not None:
        return LEAF, [strings]
    array = _array(leaf, path)
    if array.ndim == 0:
        cure = _cure(leaves)
        raise PlanError(f"from_tensor_slices() needs arrays with a first axis, but {path} is a scalar{cure}")
    return LEAF, [array]


def _string_column(leaf: Any) -> VarColumn | None:
    """Return a list of ``bytes``, or of ``str`` that UTF-8 can represent, as a column. Return None for other leaves."""
    kinds = set(map(type, leaf)) if isinstance(leaf, (list, tuple)) else set()
    if kinds == {bytes}:
        return _joined(leaf, "bytes")
    if kinds != {str}:
        return None
    try:
        return _joined(list(map(str.encode, leaf)), "str")
    except UnicodeEncodeError:  # a lone surrogate, which only a Python object can hold
        return None


def _joined(rows: Sequence[bytes], kind: VarKind) -> VarColumn:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return VarColumn(np.frombuffer(b"".join(rows), np.uint8), np.cumsum(lengths) - lengths, lengths, kind)


def _is_arrow(leaf: Any) -> bool:
    """Return True for tables and arrays of Arrow, Polars or DuckDB."""
    return hasattr(leaf, "__arrow_c_stream__") or hasattr(leaf, "__arrow_c_array__")


def _of_arrow(source: Any) -> tuple[Structure, list[Column]]:
    """Return the columns of an Arrow source. Sources of one chunk are not copied."""
    from aiostream_data.rows.arrow.importing import read_arrow  # needed for Arrow data only

    chunks = read_arrow(source)
    found = list(chunks) or [chunks.empty()]
    marks = [any(leaf.valid is not None for leaf in parts) for parts in zip(*(c.leaves for c in found), strict=True)]
    columns: list[Column] = []
    for number, has_marks in enumerate(marks):
        parts = [chunk.leaves[number] for chunk in found]
        columns.append(parts[0].column if len(parts) == 1 else concat_column([part.column for part in parts]))
        if has_marks:
            columns.append(np.concatenate([_marks(part.valid, len(part.column)) for part in parts]))
    kinds = [NULLABLE if has_marks else LEAF for has_marks in marks]
    return graft(chunks.structure, kinds), [read_only_column(column) for column in columns]


def _marks(valid: NDArray[np.bool_] | None, rows: int) -> NDArray[np.bool_]:
    return np.ones(rows, np.bool_) if valid is None else valid


def read_only_column(column: Column) -> Column:
    """Return a column whose array cannot be modified. A :class:`VarColumn` is returned unchanged."""
    return column if isinstance(column, VarColumn) else _read_only(column)


def _check_lengths(structure: Structure, columns: tuple[Column, ...]) -> None:
    paths = structure.paths()
    for path, column in zip(paths, columns, strict=True):
        if len(column) != len(columns[0]):
            raise PlanError(
                "from_tensor_slices() needs arrays of equal length, but "
                f"{paths[0]} has {len(columns[0])} rows, {path} has {len(column)}. Cut or pad one of them."
            )


def _cure(leaves: Sequence[Any]) -> str:
    is_lazy = any(isinstance(leaf, Iterator) for leaf in leaves)
    return ". Use from_iterable() or from_generator()." if is_lazy else ". Use from_tensors() for a single element."


def _array(leaf: Any, path: str) -> NDArray[Any]:
    if isinstance(leaf, (list, tuple)) and leaf and all(isinstance(value, (str, bytes)) for value in leaf):
        array = np.empty(len(leaf), object)
        array[:] = leaf
        return array
    try:
        found = nested_text(leaf)
        found = array_of(leaf, explicit=True) if found is None else found
        array = np.asarray(leaf) if found is None else found
    except (NoNumpyFormError, ValueError) as error:
        name = type_name(type(leaf))
        raise PlanError(f"from_tensor_slices() cannot convert {path}, a {name}, to an array: {error}") from error
    return _read_only(array.astype(object) if array.dtype.kind in "US" else array)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
