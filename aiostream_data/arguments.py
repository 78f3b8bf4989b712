"""Checks of what users give as arguments: each returns the value as it is used, or raises :class:`.PlanError`."""

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
"""The largest integer that counts rows: they are numbered by int64."""


class _SafeRepr(Repr):
    """Shortens the ``repr`` of values whose secrets are taken out first: half a URL cannot be told from other text."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 100

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(safe_text(x), level)

    def repr_instance(self, x: object, level: int) -> str:
        return super().repr_instance(_Shown(safe_text(repr(x))), level)


class _Shown(str):
    """A text that is its own ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_SHORT: Final = _SafeRepr()


def shown(value: object) -> str:
    """Return the ``repr`` of a value for a message: short, and without the secrets of URLs in it."""
    try:
        return _SHORT.repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the error
        return f"a {type(value).__name__}"


def integer(
    name: str, value: Any, minimum: int | None = None, maximum: int | None = MOST, what: str = "an integer"
) -> int:
    """Return an integer of at least ``minimum``, and of at most ``maximum``.

    Raises:
        PlanError: It is none; the message states rule and value.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise ArgumentTypeError(f"{name} must be {what}, got {shown(value)}")
    if minimum is not None and number < minimum:
        raise PlanError(f"{name} must be at least {minimum}, got {shown(number)}")
    if maximum is not None and number > maximum:
        raise PlanError(f"{name} must be at most {maximum}, got {shown(number)}")
    return number


def flag(name: str, value: Any) -> bool:
    """Return a bool, which NumPy's may be.

    Raises:
        PlanError: It is something else, whose truth may not be what was meant.
    """
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise ArgumentTypeError(f"{name} must be True or False, got {shown(value)}")


def word(name: str, value: Any, known: Collection[Any], or_else: str = "") -> Any:
    """Return one of the known words.

    Raises:
        PlanError: It is none of them; the message lists them.
    """
    if not any(value is one or (isinstance(value, str) and value == one) for one in known):
        raise PlanError(f"{name} must be one of {', '.join(map(str, known))}{or_else}, got {shown(value)}")
    return value


def function_or_none(name: str, value: Any) -> Any:
    """Return a function, or None.

    Raises:
        PlanError: It is neither.
    """
    if value is not None and not callable(value):
        raise ArgumentTypeError(f"{name} must be a function or None, got {shown(value)}")
    return value


def numpy_dtype(name: str, value: Any, what: str = "a dtype") -> np.dtype[Any]:
    """Return the NumPy dtype that a value stands for.

    Raises:
        PlanError: It stands for none.
    """
    try:
        found: np.dtype[Any] = np.dtype(value)
    except Exception as error:  # noqa: BLE001 - NumPy parses texts as programs, and fails with errors of any kind
        raise ArgumentTypeError(f"{name} must be {what}, got {shown(value)}: {shown(error)}") from None
    return found


def seconds_or_none(name: str, value: Any) -> float | None:
    """Return a positive, finite number of seconds, or None.

    Raises:
        PlanError: It is neither.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise PlanError(f"{name} must be a positive number of seconds or None, got {shown(value)}")
    if value > MOST // 10**9:  # what clocks of the system can count
        raise PlanError(f"{name} must be at most {MOST // 10**9} seconds, got {shown(value)}; None is for any time")
    return float(value)


def several(name: str, value: Any, what: str) -> tuple[Any, ...]:
    """Return the members of a collection, which a text is none of.

    Raises:
        PlanError: It is no collection.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise ArgumentTypeError(f"{name} must be {what}, got {shown(value)}")
    return tuple(value)


def local_path(name: str, value: Any, what: str = "a path") -> str:
    """Return the path of a local file or folder as a text, with ``~`` expanded; a URL is returned as it is.

    Raises:
        PlanError: It is none, or a system could not take it.
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
    """Refuse a remote URL with fewer than two slashes behind its scheme, which would be taken for a local path.

    Raises:
        PlanError: It is one.
    """
    if is_mistyped(url):
        raise PlanError(f"a URL has two slashes behind its scheme: write {safe_url(url)!r}")
