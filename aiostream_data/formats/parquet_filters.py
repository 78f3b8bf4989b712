"""Filters of Parquet rows: exclude row groups by their statistics, and rows by their values.

A filter has the form that PyArrow uses: a list of conditions that must all hold, or a list of such lists, of which one
must hold. A condition is a tuple (column, operator, value).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError

Condition: TypeAlias = tuple[str, str, Any]
Filters: TypeAlias = tuple[tuple[Condition, ...], ...]
"""Alternatives, of which one must hold. Each alternative is a tuple of conditions that must all hold."""

OPERATORS: Final = ("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in")

_COULD: Final[Mapping[str, Callable[[Any, Any, Any], bool]]] = {
    "=": lambda least, most, value: least <= value <= most,
    "==": lambda least, most, value: least <= value <= most,
    "<": lambda least, most, value: least < value,
    "<=": lambda least, most, value: least <= value,
    ">": lambda least, most, value: most > value,
    ">=": lambda least, most, value: most >= value,
    "in": lambda least, most, value: any(least <= each <= most for each in value),
}
"""Whether a value between ``least`` and ``most`` could satisfy a condition. Other operators exclude no row group."""


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


def may_match(filters: Filters, columns: Mapping[str, Any]) -> bool:
    """Return False if the statistics of a row group prove that no row satisfies the filters.

    Args:
        columns: PyArrow's metadata of columns of the row group, by their paths.
    """
    return any(all(_could_hold(condition, columns) for condition in part) for part in filters)


def _could_hold(condition: Condition, columns: Mapping[str, Any]) -> bool:
    name, operator, value = condition
    statistics = columns[name].statistics if name in columns and columns[name].is_stats_set else None
    if operator not in _COULD or statistics is None or not statistics.has_min_max:
        return True
    try:
        return _COULD[operator](statistics.min, statistics.max, value)
    except TypeError:  # other types: PyArrow compares them, or refuses them, row by row
        return True


def row_mask(filters: Filters, table: Any) -> Any:
    """Return a PyArrow array of booleans that is True for the rows that satisfy the filters.

    A missing value satisfies no condition.

    Raises:
        PlanError: A column cannot be compared with the value of its condition.
    """
    import pyarrow as pa
    from pyarrow import compute

    total = None
    for part in filters:
        both = None
        for column, operator, value in part:
            try:
                holds = _holds(compute, table.column(column), operator, value)
            except (pa.ArrowException, TypeError) as error:
                raise PlanError(f"the filter on column {column!r} does not fit its type: {error}") from error
            both = holds if both is None else compute.and_(both, holds)
        total = both if total is None else compute.or_(total, both)
    if isinstance(total, pa.ChunkedArray):
        total = total.combine_chunks()
    return total


def _holds(compute: Any, column: Any, operator: str, value: Any) -> Any:
    import pyarrow as pa

    if operator in ("in", "not in"):
        found = compute.is_in(column, value_set=pa.array(list(value), column.type))
        found = compute.invert(found) if operator == "not in" else found
        return compute.and_(found, compute.is_valid(column))
    names = {"=": "equal", "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal"}
    names |= {">": "greater", ">=": "greater_equal"}
    return compute.fill_null(getattr(compute, names[operator])(column, pa.scalar(value)), False)
