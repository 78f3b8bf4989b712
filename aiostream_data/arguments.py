"""Argument checks. Each check returns the normalized argument value, or raises :class:`.PlanError`."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Collection, Iterable, Mapping
from reprlib import Repr
from typing import Any, Final

import numpy as np

from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.safe_url import is_mistyped, safe_text, safe_url

MOST: Final = 2**63 - 1
"""Largest possible row count or row number, because row numbers are int64."""


class _SafeRepr(Repr):
    """Shortened ``repr``.

    Remove secrets from URLs before shortening the text, because a shortened URL cannot be recognized as a URL.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 100

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(safe_text(x), level)

    def repr_instance(self, x: object, level: int) -> str:
        return super().repr_instance(_Shown(safe_text(repr(x))), level)


class _Shown(str):
    """String class whose ``repr`` is the string itself, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_SHORT: Final = _SafeRepr()


def shown(value: object) -> str:
    """Return the ``repr`` of a value for an error message, shortened and without URL secrets."""
    try:
        return _SHORT.repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the error
        return f"a {type(value).__name__}"


def integer(
    name: str, value: Any, minimum: int | None = None, maximum: int | None = MOST, what: str = "an integer"
) -> int:
    """Validate an integer argument between ``minimum`` and ``maximum``. Return the value as an int.

    Raises:
        PlanError: The value is not an integer or is out of range. The error message states the limit and the value.
    """
    number = value if type(value) is int else _index(value)
    if number is None:
        raise ArgumentTypeError(f"{name} must be {what}, got {shown(value)}")
    if minimum is not None and number < minimum:
        raise PlanError(f"{name} must be at least {minimum}, got {shown(number)}")
    if maximum is not None and number > maximum:
        raise PlanError(f"{name} must be at most {maximum}, got {shown(number)}")
    return number


def _index(value: Any) -> int | None:
    """Return a value as an int; None for a bool, and for objects that are no integers."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def flag(name: str, value: Any) -> bool:
    """Validate a bool argument. Return the value as a Python bool. NumPy bools are accepted.

    Raises:
        PlanError: The value is not a bool. The function rejects truthy values of other types.
    """
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise ArgumentTypeError(f"{name} must be True or False, got {shown(value)}")


def word(name: str, value: Any, known: Collection[Any], or_else: str = "") -> Any:
    """Return ``value`` if ``known`` contains this value.

    Raises:
        PlanError: The value is not in ``known``. The error message lists the known values.
    """
    if not any(value is one or (isinstance(value, str) and value == one) for one in known):
        raise PlanError(f"{name} must be one of {', '.join(map(str, known))}{or_else}, got {shown(value)}")
    return value


def function_or_none(name: str, value: Any) -> Any:
    """Return ``value`` if ``value`` is callable or None.

    Raises:
        PlanError: The value is neither callable nor None.
    """
    if value is not None and not callable(value):
        raise ArgumentTypeError(f"{name} must be a function or None, got {shown(value)}")
    return value


def numpy_dtype(name: str, value: Any, what: str = "a dtype") -> np.dtype[Any]:
    """Convert a value to a NumPy dtype.

    Raises:
        PlanError: NumPy cannot convert the value to a dtype.
    """
    try:
        found: np.dtype[Any] = np.dtype(value)
    except Exception as error:  # noqa: BLE001 - NumPy parses texts as programs, and fails with errors of any kind
        raise ArgumentTypeError(f"{name} must be {what}, got {shown(value)}: {shown(error)}") from None
    return found


def seconds_or_none(name: str, value: Any) -> float | None:
    """Validate a duration argument, which is a positive, finite number of seconds, or None.

    Raises:
        PlanError: The value is not a valid duration, or exceeds 2**63 - 1 nanoseconds.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise PlanError(f"{name} must be a positive number of seconds or None, got {shown(value)}")
    if value > MOST // 10**9:  # system clocks count nanoseconds in 64 bits
        raise PlanError(f"{name} must be at most {MOST // 10**9} seconds, or None (no limit), got {shown(value)}")
    return float(value)


def several(name: str, value: Any, what: str) -> tuple[Any, ...]:
    """Return the members of an iterable as a tuple.

    Raises:
        PlanError: The value is a string, bytes, a mapping, or not iterable.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise ArgumentTypeError(f"{name} must be {what}, got {shown(value)}")
    return tuple(value)


def local_path(name: str, value: Any, what: str = "a path") -> str:
    """Return the path of a local file or folder as a string, with ``~`` expanded.

    If the value is a URL, return the URL unchanged.

    Raises:
        PlanError: The value is not a path, or contains characters that no file system accepts.
    """
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path:
        raise ArgumentTypeError(f"{name} must be {what}, got {shown(value)}")
    try:
        encoded = os.fsencode(path)
    except UnicodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise PlanError(f"{name} must be {what} without NUL and lone surrogates, got {shown(path)}")
    check_slashes(path)
    return os.path.expanduser(path)


def check_slashes(url: str) -> None:
    """Reject a remote URL with fewer than two slashes after its scheme. Such a URL would be treated as a local path.

    Raises:
        PlanError: The URL has fewer than two slashes after its scheme.
    """
    if is_mistyped(url):
        raise PlanError(f"a URL must have two slashes after its scheme. Write {safe_url(url)!r}")
