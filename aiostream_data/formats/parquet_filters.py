"""Filters of Parquet rows.

A filter has the form that PyArrow uses: a list of conditions that must all hold, or a list of such lists, of which one
must hold. A condition is a tuple (column, operator, value).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError
from aiostream_data.formats.column_paths import column_at
from aiostream_data.formats.filter_columns import ColumnFilter
from aiostream_data.formats.filter_values import UNKNOWN
from aiostream_data.safe_url import safe_url

Condition: TypeAlias = tuple[str, str, Any]
Filters: TypeAlias = tuple[tuple[Condition, ...], ...]
"""Alternatives, of which one must hold. Each alternative is a tuple of conditions that must all hold."""

OPERATORS: Final = ("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in")


def checked_filters(filters: Any) -> Filters:
    """Return filters as nested tuples.

    Raises:
        PlanError: The filters do not have the described form.
    """
    if filters is None:
        return ()
    if not isinstance(filters, Sequence) or isinstance(filters, (str, bytes)):
        raise PlanError(f"filters must be a list of (column, operator, value), got {shown(filters)}")
    given = list(filters)
    alternatives = given if given and all(isinstance(each, list) for each in given) else [given]
    return tuple(tuple(map(_condition, each)) for each in alternatives if each)


def _condition(given: Any) -> Condition:
    if not isinstance(given, tuple) or len(given) != 3 or not isinstance(given[0], str):
        raise PlanError(f"a filter must be a tuple (column, operator, value), got {shown(given)}")
    column, operator, value = given
    if operator not in OPERATORS:
        raise PlanError(f"the operator of a filter must be one of {', '.join(OPERATORS)}, got {shown(operator)}")
    if operator in ("in", "not in"):
        if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple, set, frozenset)):
            raise PlanError(f"the filter on {column!r} needs a list of values, got {shown(value)}")
        value = tuple(value)
    return column, operator, value


def row_mask(filters: Filters, table: Any, url: str = "") -> Any:
    """Return a PyArrow array of booleans that is True for the rows that satisfy the filters.

    A missing value satisfies no condition.

    Args:
        url: URL of the file, for error messages; "" for no file.

    Raises:
        PlanError: A column cannot be compared with the value of its condition.
    """
    from pyarrow import ChunkedArray, compute

    total = None
    for part in filters:
        both = None
        for condition in part:
            holds = _rows_that_hold(condition, table, url)
            both = holds if both is None else compute.and_(both, holds)
        total = both if total is None else compute.or_(total, both)
    return total.combine_chunks() if isinstance(total, ChunkedArray) else total


def _rows_that_hold(condition: Condition, table: Any, url: str) -> Any:
    import pyarrow as pa

    name, operator, value = condition
    where = f" in {safe_url(url)}" if url else ""
    column = column_at(pa, table, name)
    if column is None:
        raise PlanError(f"the filter on column {name!r} names no field of a struct{where}. Call Dataset.filter().")
    try:
        return ColumnFilter(pa, column).mask(operator, value)
    except (pa.ArrowException, PlanError, *UNKNOWN) as error:
        cure = "Compare with a value of this type"
        if pa.types.is_nested(column.type):
            cure = "Name a field of a struct, or call Dataset.filter()"
        raise PlanError(
            f"the filter on column {name!r} does not fit its type, {column.type}{where}: {error}. {cure}."
        ) from error


def open_alternatives(filters: Filters, row: Any) -> Filters:
    """Return the alternatives of the filters that a file with constant columns may satisfy.

    Args:
        row: ``pyarrow.Table`` of one row with the constant columns.
    """
    known = set(row.column_names)

    def may_hold(condition: Condition) -> bool:
        return condition[0] not in known or bool(row_mask(((condition,),), row)[0].as_py())

    return tuple(part for part in filters if all(map(may_hold, part)))
