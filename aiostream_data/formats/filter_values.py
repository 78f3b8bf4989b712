"""Fit the values of filters to the types of columns, so that comparisons cannot overflow.

Integers, decimals, dates and times are compared exactly, as the integers that a column stores. Numbers are rounded to
the type of a column of floating-point numbers, so 0.1 is found in a column of float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any, Final, TypeAlias

import numpy as np

Exact: TypeAlias = "int | float | Fraction"
"""A rational number, which is never rounded. A float is infinity or NaN."""

Fitted: TypeAlias = "tuple[str, Any] | bool"
"""An operator with a value of the type of the column, or the result for all values that are not missing."""

UNKNOWN: Final = (ArithmeticError, NotImplementedError, TypeError, ValueError)
"""Errors of PyArrow for values that it or Python cannot represent, and of values that cannot be compared."""

_NS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NS: Final = 86_400 * 10**9
_LONG_UNITS: Final = ("Y", "M", "W", "D", "h", "m")
_DECIMALS: Final = Context(prec=100)
"""Context of decimals with up to 256 bits, which have at most 78 digits."""


def is_exact(pyarrow: Any, kind: Any) -> bool:
    """Return True for types whose values are integers in some unit."""
    types = pyarrow.types
    return bool(types.is_integer(kind) or types.is_decimal(kind) or _family(pyarrow, kind))


def is_missing(pyarrow: Any, value: Any) -> bool:
    """Return True for None, a null scalar of PyArrow, and NaT."""
    if isinstance(value, pyarrow.Scalar):
        return not value.is_valid
    return value is None or (isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(value)))


def limits_of(pyarrow: Any, kind: Any) -> tuple[int, int]:
    """Return the smallest and the largest integer that an exact type stores."""
    types = pyarrow.types
    if types.is_decimal(kind):
        most = 10**kind.precision - 1
        return -most, most
    if types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def number_of(pyarrow: Any, kind: Any, value: Any) -> Exact | None:
    """Return a value in the unit of the integers that an exact type stores, or None for a value of another kind."""
    if _family(pyarrow, kind):
        return _ticks(pyarrow, kind, value)
    if isinstance(value, pyarrow.Scalar):
        value = value.as_py()
    if not pyarrow.types.is_decimal(kind):
        return _rational(value)
    is_float = isinstance(value, (float, np.floating))
    number = _rational(Decimal(repr(float(value))) if is_float else value)
    return number if number is None or isinstance(number, float) else number * Fraction(10) ** kind.scale


def float_of(pyarrow: Any, kind: Any, value: Any) -> float | None:
    """Return a number rounded to a floating-point type, or None for a value of another kind.

    A number that is larger than all numbers of the type becomes infinity.
    """
    number = _rational(value.as_py() if isinstance(value, pyarrow.Scalar) else value)
    return None if number is None else _rounded(kind, number)


def fitted(pyarrow: Any, kind: Any, operator: str, value: Any) -> Fitted | None:
    """Return a comparison with a value of the type of the column, or None if the values are of different kinds.

    Args:
        kind: An exact or a floating-point type.
        operator: ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
        value: Value of a condition that is not missing.
    """
    if is_exact(pyarrow, kind):
        number = number_of(pyarrow, kind, value)
        return None if number is None else _bounded(operator, number, limits_of(pyarrow, kind), _stored(pyarrow, kind))
    number = _rational(value.as_py() if isinstance(value, pyarrow.Scalar) else value)
    if number is None:
        return None
    rounded = _rounded(kind, number)
    if math.isinf(rounded) and not isinstance(number, float):
        return _beyond_floats(operator, rounded > 0, float(np.finfo(kind.to_pandas_dtype()).max))
    return operator, rounded


def _rounded(kind: Any, number: Exact) -> float:
    try:
        wide = float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    with np.errstate(over="ignore"):
        return float(kind.to_pandas_dtype()(wide))


def _bounded(operator: str, number: Exact, limits: tuple[int, int], stored: Callable[[int], Any]) -> Fitted:
    least, most = limits
    if isinstance(number, float) and math.isnan(number):
        return operator == "!="
    is_ordered, is_less = operator not in ("=", "!="), operator in ("<", "<=")
    if number > most or number < least:
        return (number > most) == is_less if is_ordered else operator == "!="
    whole = math.floor(number)
    if whole == number:
        return operator, stored(whole)
    return ("<=" if is_less else ">", stored(whole)) if is_ordered else operator == "!="


def _beyond_floats(operator: str, is_above: bool, most: float) -> Fitted:
    """Return a comparison with a finite number that is larger than all numbers of a type, or smaller than all."""
    if operator in ("=", "!="):
        return operator == "!="
    if operator in ("<", "<="):
        return ("<=", most) if is_above else ("<", -most)
    return (">", most) if is_above else (">=", -most)


def _stored(pyarrow: Any, kind: Any) -> Callable[[int], Any]:
    """Return the function from a stored integer to the value that PyArrow accepts for the type."""
    if not pyarrow.types.is_decimal(kind):
        return int
    return lambda number: _DECIMALS.scaleb(Decimal(number), -kind.scale)


def _rational(value: Any) -> Exact | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return Fraction(number) if math.isfinite(number) else number
    if isinstance(value, Decimal):
        return Fraction(value) if value.is_finite() else math.nan if value.is_nan() else float(value)
    return Fraction(value) if isinstance(value, Rational) else None


def _family(pyarrow: Any, kind: Any) -> str:
    """Return a name for types of dates and times whose values can be compared with each other, or ""."""
    types = pyarrow.types
    if types.is_timestamp(kind) or types.is_date(kind):
        return "with a time zone" if types.is_timestamp(kind) and kind.tz is not None else "date"
    return "duration" if types.is_duration(kind) else "time" if types.is_time(kind) else ""


def _ticks(pyarrow: Any, kind: Any, value: Any) -> Exact | None:
    scalar = value if isinstance(value, pyarrow.Scalar) else pyarrow.scalar(_with_known_unit(value))
    if _family(pyarrow, scalar.type) != _family(pyarrow, kind):
        return None
    number = Fraction(scalar.value * _unit_ns(pyarrow, scalar.type), _unit_ns(pyarrow, kind))
    return number.numerator if number.denominator == 1 else number


def _with_known_unit(value: Any) -> Any:
    """Return dates and times of NumPy with a unit that PyArrow knows."""
    if not isinstance(value, (np.datetime64, np.timedelta64)) or np.datetime_data(value.dtype)[0] not in _LONG_UNITS:
        return value
    return value.astype("M8[s]" if isinstance(value, np.datetime64) else "m8[s]")


def _unit_ns(pyarrow: Any, kind: Any) -> int:
    if pyarrow.types.is_date32(kind):
        return _DAY_NS
    return _NS["ms" if pyarrow.types.is_date64(kind) else kind.unit]
