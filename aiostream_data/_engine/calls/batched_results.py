"""Convert results of functions of ``map(batched=True)`` to columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.plan.written import function_name
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, type_name
from aiostream_data.rows.asked_arrays import asked_array, needs_asking
from aiostream_data.rows.columns import Column, VarColumn, object_array
from aiostream_data.rows.records import Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, NULLABLE, Structure, flatten, graft
from aiostream_data.rows.text_arrays import BytesArray, TextArray
from aiostream_data.rows.text_lists import is_text_list, nested_text
from aiostream_data.transforms.collate import column_of


def result_columns(result: Any, ids: RowIds, function: Callable[..., Any]) -> Columns:
    """Convert the result of a batched function to one column per leaf, with rows on the first axis.

    Args:
        ids: Ids of the rows that the function received.

    Raises:
        PlanError: A leaf cannot become a dense array, or has another number of rows, or there are no leaves.
    """
    structure, leaves = flatten(_with_text_lists(result))
    if not leaves:
        raise PlanError(
            f"{function_name(function)} must return arrays with {len(ids)} rows, since map() has batched=True, but its "
            "result has no arrays. Return at least one array, or use map() without batched=True for empty elements."
        )
    columns: list[Column] = []
    kinds: list[Structure] = []
    for path, leaf in zip(structure.paths(), leaves, strict=True):
        column = _column(leaf, path, function)
        shape = (len(column),) if isinstance(column, VarColumn) else column.shape
        if not shape or shape[0] != len(ids):
            raise PlanError(
                f"a batched map function must return as many rows as it received ({len(ids)}), but {path} has shape "
                f"{shape}"
            )
        marks = _marks(leaf)
        columns += [column] if marks is None else [column, marks]
        kinds.append(LEAF if marks is None else NULLABLE)
    return Columns(graft(structure, kinds) if NULLABLE in kinds else structure, tuple(columns), ids)


def _with_text_lists(result: Any) -> Any:
    """Replace each tuple of bytes or text by a list of rows. Other tuples are structures with several leaves."""
    if type(result) is dict:
        return {key: _with_text_lists(part) for key, part in result.items()}
    if type(result) is not tuple:
        return result
    return list(result) if is_text_list(result) else tuple(map(_with_text_lists, result))


def _marks(leaf: Any) -> NDArray[np.bool_] | None:
    """Return the marks of the rows with values if a text or bytes is missing in an array of this package."""
    return leaf.valid if isinstance(leaf, (BytesArray, TextArray)) else None


def _column(leaf: Any, path: str, function: Callable[..., Any]) -> Column:
    if isinstance(leaf, (BytesArray, TextArray)):
        return leaf.column()
    if is_text_list(leaf):
        column = column_of(leaf)
        return object_array(leaf) if column is None else column
    try:
        array = asked_array(leaf) if needs_asking(leaf) else nested_text(leaf)
        array = array_of(leaf, explicit=True) if array is None else array
        return np.asarray(leaf) if array is None else array
    except (NoNumpyFormError, ValueError) as error:
        raise PlanError(
            f"{function_name(function)} must return arrays, since map() has batched=True, but {path} is a "
            f"{type_name(type(leaf))}, which cannot become a dense numpy.ndarray: {error}"
        ) from error
