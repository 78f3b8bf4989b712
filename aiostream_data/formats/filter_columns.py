"""Compare columns of an Arrow table with the values of filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError
from aiostream_data.formats.filter_values import fitted, is_exact, is_missing, limits_of

_FUNCTIONS: Final = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


class ColumnFilter:
    """Evaluates conditions on one column. A missing value satisfies no condition.

    Args:
        pyarrow: The module.
        column: The column, a ``pyarrow.ChunkedArray``.

    Raises (by all methods):
        PlanError: The column cannot be compared with the value.
        pyarrow.ArrowException: The same, for types that PyArrow compares.
    """

    def __init__(self, pyarrow: Any, column: Any) -> None:
        from pyarrow import compute

        self._pyarrow, self._compute = pyarrow, compute
        column = _stored(pyarrow, column)
        self._kind = column.type
        self._column = _comparable(pyarrow, compute, column)
        self._is_number = is_exact(pyarrow, self._kind) or pyarrow.types.is_floating(self._kind)

    def mask(self, operator: str, value: Any) -> Any:
        """Return a ``pyarrow.ChunkedArray`` of booleans that is True for the rows that satisfy a condition."""
        if self._pyarrow.types.is_dictionary(self._kind):
            return self._mask_of_dictionaries(operator, value)
        if operator not in ("in", "not in"):
            return self._compared(operator.replace("==", "="), value)
        found = self._is_in([each for each in value if not is_missing(self._pyarrow, each)])
        if operator == "in":
            return found
        return self._compute.and_(self._compute.invert(found), self._compute.is_valid(self._column))

    def _mask_of_dictionaries(self, operator: str, value: Any) -> Any:
        """Evaluate a condition once for each value of the dictionaries."""
        pa, compute = self._pyarrow, self._compute
        masks = []
        for chunk in self._column.chunks or [pa.array([], self._kind)]:
            entries = ColumnFilter(pa, pa.chunked_array([chunk.dictionary])).mask(operator, value)
            masks.append(compute.fill_null(compute.take(entries.combine_chunks(), chunk.indices), False))
        return pa.chunked_array(masks, pa.bool_())

    def _compared(self, operator: str, value: Any) -> Any:
        if is_missing(self._pyarrow, value):
            return self._constant(False)
        if self._is_number:
            found = fitted(self._pyarrow, self._kind, operator, value)
            if found is None:
                raise self._misfit(value)
            if isinstance(found, bool):
                return self._constant(found)
            operator, value = found
            scalar = self._pyarrow.scalar(value, self._column.type)
        else:
            scalar = value if isinstance(value, self._pyarrow.Scalar) else self._pyarrow.scalar(value)
            scalar = scalar.value if isinstance(scalar.type, self._pyarrow.BaseExtensionType) else scalar
        compared = getattr(self._compute, _FUNCTIONS[operator])(self._column, scalar)
        return self._compute.fill_null(compared, False)

    def _is_in(self, values: Sequence[Any]) -> Any:
        if self._is_number:
            return self._is_any_of(values if self._are_stored(values) else self._stored_numbers(values))
        if values and all(isinstance(each, self._python_type) for each in values):
            return self._is_any_of(values)
        found = self._constant(False)
        for each in values:
            found = self._compute.or_(found, self._compared("=", each))
        return found

    def _is_any_of(self, values: Iterable[Any]) -> Any:
        return self._compute.is_in(self._column, value_set=self._pyarrow.array(list(values), self._column.type))

    def _are_stored(self, values: Sequence[Any]) -> bool:
        """Return True if all values are integers of the type of the column, as in most long lists."""
        if not self._pyarrow.types.is_integer(self._kind) or any(type(each) is not int for each in values):
            return False
        least, most = limits_of(self._pyarrow, self._kind)
        return not values or least <= min(values) <= max(values) <= most

    @property
    def _python_type(self) -> type | tuple[()]:
        """Class of the values that PyArrow converts to the type of the column without a change."""
        types, kind = self._pyarrow.types, self._kind
        if types.is_string(kind) or types.is_large_string(kind):
            return str
        if types.is_binary(kind) or types.is_large_binary(kind):
            return bytes
        return bool if types.is_boolean(kind) else ()

    def _stored_numbers(self, values: Iterable[Any]) -> list[Any]:
        """Return the values that a number of the column can be equal to."""
        stored: list[Any] = []
        for each in values:
            found = fitted(self._pyarrow, self._kind, "=", each)
            if found is None:
                raise self._misfit(each)
            if isinstance(found, tuple):
                stored.append(found[1])
        is_float = self._pyarrow.types.is_floating(self._kind)
        zeros = [0.0, -0.0] if is_float and 0.0 in stored else []  # is_in() tells them apart
        return [*stored, *zeros]

    def _constant(self, value: bool) -> Any:
        """Return a mask with one result for all values that are not missing."""
        valid = self._compute.is_valid(self._column)
        return valid if value else self._compute.xor(valid, valid)

    def _misfit(self, value: Any) -> PlanError:
        return PlanError(f"{shown(value)} cannot be compared with {self._kind}")


def _stored(pyarrow: Any, column: Any) -> Any:
    """Return the storage of a column with an extension type."""
    while isinstance(column.type, pyarrow.BaseExtensionType):
        storage = column.type.storage_type
        column = pyarrow.chunked_array([each.storage for each in column.chunks], storage)
    return column


def _comparable(pyarrow: Any, compute: Any, column: Any) -> Any:
    """Return a column with a type that PyArrow can compare."""
    types, kind = pyarrow.types, column.type
    if types.is_float16(kind):
        return compute.cast(column, pyarrow.float32())
    if types.is_decimal(kind) and kind.bit_width < 128:
        return compute.cast(column, pyarrow.decimal128(kind.precision, kind.scale))
    return column
