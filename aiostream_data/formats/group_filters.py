"""Exclude row groups of a Parquet file by the statistics of their columns."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiostream_data.formats.filter_values import UNKNOWN, float_of, is_exact, is_missing, number_of
from aiostream_data.formats.parquet_filters import Condition, Filters
from aiostream_data.formats.plain_types import plain_type

_COULD: Final[Mapping[str, Callable[[Any, Any, Any], bool]]] = {
    "=": lambda least, most, value: least <= value <= most,
    "==": lambda least, most, value: least <= value <= most,
    "<": lambda least, most, value: least < value,
    "<=": lambda least, most, value: least <= value,
    ">": lambda least, most, value: most > value,
    ">=": lambda least, most, value: most >= value,
}
"""Functions that return True if a value from ``least`` to ``most`` can satisfy a condition, by operator.

Conditions with other operators exclude no row group."""


class _Bound(NamedTuple):
    """A condition whose values have the order of the column.

    Attributes:
        values: The values, ascending; one value unless the operator is ``in``.
    """

    operator: str
    values: Sequence[Any]

    def could_hold(self, least: Any, most: Any) -> bool:
        """Return False if no value from ``least`` to ``most`` satisfies the condition."""
        if self.operator != "in":
            return _COULD[self.operator](least, most, self.values[0])
        at = bisect_left(self.values, least)
        return at < len(self.values) and bool(self.values[at] <= most)


class GroupFilter:
    """Finds the row groups that may contain rows which satisfy filters.

    Args:
        pyarrow: The module.
        filters: The filters.
        kinds: Arrow types of columns with statistics, by their paths.
    """

    def __init__(self, pyarrow: Any, filters: Filters, kinds: Mapping[str, Any]) -> None:
        self._pyarrow = pyarrow
        self._kinds = {path: plain_type(pyarrow, kind) for path, kind in kinds.items()}
        self._parts = [[(each[0], self._bound(each)) for each in part] for part in filters]

    def may_match(self, columns: Mapping[str, Any]) -> bool:
        """Return False if the statistics of a row group prove that no row satisfies the filters.

        Args:
            columns: PyArrow's metadata of columns of the row group, by their paths.
        """
        return any(
            all(self._could_hold(columns.get(path), path, bound) for path, bound in part) for part in self._parts
        )

    def _could_hold(self, metadata: Any, path: str, bound: _Bound | None) -> bool:
        if bound is None or metadata is None or not metadata.is_stats_set or not metadata.statistics.has_min_max:
            return True
        try:
            least, most = (self._ordered(path, each) for each in (metadata.statistics.min, metadata.statistics.max))
        except UNKNOWN:
            return True
        return least is None or most is None or bound.could_hold(least, most)

    def _bound(self, condition: Condition) -> _Bound | None:
        """Return a condition that statistics can exclude, or None."""
        path, operator, value = condition
        if path not in self._kinds or (operator not in _COULD and operator != "in"):
            return None
        given = [each for each in value if not is_missing(self._pyarrow, each)] if operator == "in" else [value]
        try:
            values = [self._ordered(path, each) for each in given]
        except UNKNOWN:
            return None
        if any(each is None or (isinstance(each, float) and math.isinf(each)) for each in values):
            return None
        return _Bound(operator, sorted(values))

    def _ordered(self, path: str, value: Any) -> Any:
        """Return a value in a form that is ordered as the values of the column are; None if its order is unknown."""
        kind = self._kinds[path]
        if is_missing(self._pyarrow, value):
            return None
        if is_exact(self._pyarrow, kind):
            number = number_of(self._pyarrow, kind, value)
        elif self._pyarrow.types.is_floating(kind):
            number = float_of(self._pyarrow, kind, value)
        else:
            return value if isinstance(value, _class_of(self._pyarrow.types, kind)) else None
        return None if isinstance(number, float) and math.isnan(number) else number


def _class_of(types: Any, kind: Any) -> type | tuple[()]:
    """Return the class of the values of a type whose order is the same in Python and in files."""
    if types.is_string(kind) or types.is_large_string(kind):
        return str
    if types.is_boolean(kind):
        return bool
    return bytes if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) else ()
