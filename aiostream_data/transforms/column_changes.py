"""Change the columns of the dict elements of a chunk: pick, add or convert columns, without touching other columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CastError
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.dict_columns import Picks, columns_of, joined, picked, with_column
from aiostream_data.rows.ragged import RaggedArray, trusted_ragged
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.structure import structure_of
from aiostream_data.transforms.collate import array_as_read_back

CheckDtype = Callable[[str, np.dtype[Any], Sequence[Any]], None]
"""Function ``(column, dtype, present)`` that raises an error if ``cast`` cannot convert a column of this dtype.

``present`` are the names of all columns of the element.
"""


def dicts_at_start(chunk: Chunk) -> int:
    """Return the number of leading rows that are dicts."""
    if isinstance(chunk, Columns):
        return len(chunk) if chunk.structure.kind == "dict" else 0
    return next((row for row, value in enumerate(chunk.values) if not isinstance(value, Mapping)), len(chunk))


def pick_columns(chunk: Chunk, picks: Callable[[Sequence[Any]], Picks]) -> Chunk:
    """Keep, leave out or rename columns. All rows must be dicts. No column is copied.

    Args:
        picks: Function that returns the columns to keep, given the names of all columns.
    """
    if isinstance(chunk, Columns):
        structure, leaves = picked(chunk.structure, chunk.leaves, picks(chunk.structure.names))
        return replace(chunk, structure=structure, leaves=leaves)
    known: dict[tuple[Any, ...], Picks] = {}
    values = []
    for element in chunk.values:
        names = tuple(element)
        if names not in known:
            known[names] = picks(names)
        values.append({new: element[old] for old, new in known[names]})
    return Items(values, chunk.ids, chunk.lease, chunk.made_of)


def add_column(chunk: Chunk, name: str, values: Chunk) -> Chunk:
    """Add a column, or replace the column of this name. All rows must be dicts; ``values`` has as many rows.

    The other columns are not copied if the values form columns.
    """
    if isinstance(chunk, Columns) and isinstance(values, Columns):
        structure, leaves = with_column(chunk.structure, chunk.leaves, name, values.structure, values.leaves)
        return replace(chunk, structure=structure, leaves=leaves)
    pairs = zip(chunk.elements(), values.elements(), strict=True)
    return Items([{**element, name: value} for element, value in pairs], chunk.ids, chunk.lease, chunk.made_of)


def cast_columns(chunk: Chunk, dtypes: Mapping[str, np.dtype[Any]], check: CheckDtype, *, may_lose: bool) -> Chunk:
    """Convert columns to other dtypes. All rows must be dicts with these columns.

    Missing values stay None. A column that has the dtype already is not copied.

    Args:
        may_lose: If True, values that do not fit become what NumPy makes of them.

    Raises:
        CastError: A value does not fit into the dtype.
        ColumnError: The values of a column cannot be converted.
    """
    if not isinstance(chunk, Columns):
        values = [_cast_element(element, dtypes, check, may_lose) for element in chunk.values]
        return Items(values, chunk.ids, chunk.lease, chunk.made_of)
    columns = columns_of(chunk.structure, chunk.leaves)
    for name, dtype in dtypes.items():
        child, leaves = columns[name]
        marks = [
            is_mark for nullable in child.nullable_leaves() for is_mark in ([False, True] if nullable else [False])
        ]
        cast = _Cast(name, dtype, check, chunk.structure.names, may_lose)
        columns[name] = (
            child,
            tuple(leaf if is_mark else cast.column(leaf) for leaf, is_mark in zip(leaves, marks, strict=True)),
        )
    structure, found = joined((name, *column) for name, column in columns.items())
    return replace(chunk, structure=structure, leaves=found)


def _cast_element(
    element: Mapping[str, Any], dtypes: Mapping[str, np.dtype[Any]], check: CheckDtype, may_lose: bool
) -> dict[str, Any]:
    changed = dict(element)
    for name, dtype in dtypes.items():
        cast = _Cast(name, dtype, check, tuple(element), may_lose)
        changed[name] = structure_of(element[name]).map(cast.value, element[name])
    return changed


class _Cast:
    """Conversion of one column."""

    def __init__(
        self, name: str, dtype: np.dtype[Any], check: CheckDtype, present: Sequence[Any], may_lose: bool
    ) -> None:
        self._name, self._dtype, self._present, self._may_lose = name, dtype, present, may_lose
        self._check = check

    def column(self, column: Column) -> Column:
        """Convert a column of a chunk."""
        if not isinstance(column, VarColumn):
            return self.array(column)
        if column.kind != "array":
            self._refuse()
        if column.dtype == self._dtype:
            return column
        own = column.compact()  # the values may contain rows of other chunks
        return VarColumn(self.array(own.values), own.starts, own.lengths, "array")

    def value(self, value: Any) -> Any:
        """Convert a leaf of an element."""
        if value is None:
            return None
        if isinstance(value, RaggedArray):
            return trusted_ragged(self.array(np.asarray(value.values)), value.row_splits)
        try:
            array = array_of(value)
        except NoNumpyFormError:
            array = None
        if array is None:
            self._refuse()
        assert array is not None
        return array_as_read_back(self.array(array))

    def array(self, array: NDArray[Any]) -> NDArray[Any]:
        """Convert an array, after checking that its values fit."""
        if array.dtype == self._dtype:
            return array
        self._check(self._name, array.dtype, self._present)
        with np.errstate(all="ignore"):
            made = array.astype(self._dtype)
        if not self._may_lose:
            lost = _lost(array, made)
            if lost.any():
                raise CastError(self._name, array[lost].flat[0].item(), str(self._dtype))
        return made

    def _refuse(self) -> None:
        self._check(self._name, np.dtype(object), self._present)


def _lost(array: NDArray[Any], made: NDArray[Any]) -> NDArray[np.bool_]:
    """Return True for each value that does not fit into its new dtype. Rounding a floating-point number is no loss."""
    if made.dtype.kind in "iu":
        if array.dtype.kind == "b" or np.can_cast(array.dtype, made.dtype):
            return np.zeros(array.shape, np.bool_)
        limits = np.iinfo(made.dtype)
        # Compare as Python numbers: NumPy refuses a limit outside of the array's own dtype.
        own = np.iinfo(array.dtype)
        return np.asarray((array < max(limits.min, own.min)) | (array > min(limits.max, own.max)))
    if made.dtype.kind in "fc":
        return np.asarray(np.isinf(made) & np.isfinite(array))
    return np.zeros(array.shape, np.bool_)
