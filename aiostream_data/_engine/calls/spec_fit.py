"""Compare elements and columns with declared specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from aiostream_data.plan.spec import ArraySpec
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, type_name
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.records import Columns
from aiostream_data.rows.structure import Structure, StructureError

_OBJECT: Final = np.dtype(object)


def misfit(element: Any, structure: Structure, specs: Sequence[ArraySpec]) -> str:
    """Describe the first difference between an element and a spec. Return "" if the element matches.

    Args:
        specs: Spec of each leaf of ``structure``, in leaf order.
    """
    try:
        leaves = structure.flatten(element)
    except StructureError as error:
        return str(error)
    for path, spec, leaf in zip(structure.paths(), specs, leaves, strict=True):
        found = _misfit_of_leaf(leaf, spec)
        if found:
            return f"{path} must be {_wanted(spec)}, got {found}"
    return ""


def columns_fit(chunk: Columns, structure: Structure, specs: Sequence[ArraySpec]) -> bool:
    """Return True if the columns show that all rows match. Otherwise, a row may match or not."""
    return chunk.structure == structure and all(map(_column_fits, chunk.leaves, specs))


def _column_fits(column: Column, spec: ArraySpec) -> bool:
    if not isinstance(column, VarColumn):
        return column.dtype != _OBJECT and _fits(column.dtype, column.shape[1:], spec)
    if column.kind == "array":
        return _fits(column.dtype, (None, *column.item_shape), spec)
    return _is_for_text(spec)


def _misfit_of_leaf(leaf: Any, spec: ArraySpec) -> str:
    if isinstance(leaf, (bytes, str)):
        return "" if _is_for_text(spec) else type(leaf).__name__
    if isinstance(leaf, RaggedArray):
        rows = np.asarray(leaf.values)
        shape = (len(leaf), None, *rows.shape[1:])
        return "" if _fits(rows.dtype, shape, spec) else f"a RaggedArray of {rows.dtype}, of shape {shape}"
    try:
        array = array_of(leaf, explicit=True)
    except NoNumpyFormError as error:
        return f"{type_name(type(leaf))}, which cannot become a dense numpy.ndarray: {error}"
    if array is None:
        array = np.empty((), object)
    return "" if _fits(array.dtype, array.shape, spec) else f"{array.dtype} of shape {array.shape}"


def _is_for_text(spec: ArraySpec) -> bool:
    return spec.dtype in (None, _OBJECT) and not spec.shape


def _fits(dtype: np.dtype[Any], shape: tuple[int | None, ...], spec: ArraySpec) -> bool:
    if spec.dtype is not None and dtype != spec.dtype:
        return False
    if spec.shape is None:
        return True
    return len(shape) == len(spec.shape) and all(
        want in (None, have) for want, have in zip(spec.shape, shape, strict=True)
    )


def _wanted(spec: ArraySpec) -> str:
    return f"{spec.dtype or 'any dtype'} of shape {'any' if spec.shape is None else spec.shape}"
