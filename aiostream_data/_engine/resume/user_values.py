"""Store small values of user functions in a saved state, and restore equal values of the same types.

How this works. :func:`stored` converts a value to JSON-compatible data, or returns None if JSON cannot represent the
value exactly. Numbers, strings, None, NumPy scalars and arrays, and lists, tuples and dicts of these values are
stored. Values of other types, and values above :data:`MAX_NBYTES`, are not stored. :func:`sealed` adds a hash, so that
:func:`unsealed` refuses a damaged value before a user function receives the value.
"""

from __future__ import annotations

import binascii
import json
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from aiostream_data.plan.values import hashed
from aiostream_data.state_fields import MAX_COUNT, MAX_SEED_BITS, Part

Stored: TypeAlias = Any
"""JSON-compatible form of a value. Values that JSON cannot represent are lists that begin with the name of a type."""

MAX_NBYTES: Final = 16 << 10
"""Maximum size of the JSON text of a stored value in bytes."""

_PART_NBYTES: Final = 14
"""Maximum size of the brackets, the comma and the type name around one part of a value."""

_MAX_DEPTH: Final = 16
_ARRAY_KINDS: Final = "biufcmMSU"
_HASH_NBYTES: Final = 8


class NotStorableError(Exception):
    """The value cannot be stored. Never leaves this module."""


def stored(value: Any) -> tuple[Stored] | None:
    """Return the stored form of a value in a tuple, or None if the value cannot be stored exactly.

    Time and memory are limited, whatever the size of the value.
    """
    try:
        return (_ValueWriter().write(value, 0),)
    except NotStorableError:
        return None


def restored(form: Stored) -> Any:
    """Return a new value, given the form that :func:`stored` returned.

    Raises:
        ValueError: The form is not one that :func:`stored` returns.
    """
    try:
        return _read(form, 0)
    except (TypeError, KeyError, IndexError, OverflowError, UnicodeError) as error:
        raise ValueError(f"is not a stored value: {error}") from error


def sealed(form: Stored) -> dict[str, Any]:
    """Return a stored form with its hash."""
    return {"value": form, "hash": _hash(form)}


def unsealed(part: Part) -> Any:
    """Return the value in a part of a state that :func:`sealed` wrote.

    Raises:
        DamagedStateError: The hash differs, or the form is invalid.
    """
    fields = part.fields("value", "hash")
    try:
        if fields["hash"].text() != _hash(fields["value"].value):
            raise fields["hash"].refused("must be the hash of the value")
        return restored(fields["value"].value)
    except (ValueError, RecursionError) as error:
        raise fields["value"].refused("must be a stored value") from error


def _hash(form: Stored) -> str:
    return hashed(json.dumps(form), _HASH_NBYTES)


class _ValueWriter:
    """Converts one value, and stops when the value is too large."""

    def __init__(self) -> None:
        self._left = MAX_NBYTES
        self._within: set[int] = set()

    def write(self, value: Any, depth: int) -> Stored:
        kind = type(value)
        self._spend(_PART_NBYTES)
        if value is None or kind is bool:
            return value
        if kind is int:
            return self._integer(value)
        if kind is float:
            return self._text(value) if math.isfinite(value) else ["float", repr(value)]
        if kind is str:
            return self._text(value)
        if kind is bytes:
            return ["bytes", self._bytes(value)]
        if isinstance(value, np.generic):
            return ["scalar", *self._array(np.asarray(value))]
        if depth >= _MAX_DEPTH:
            raise NotStorableError
        if kind is tuple:
            return ["tuple", *(self.write(part, depth + 1) for part in value)]
        self._once(value)
        if kind is np.ndarray:
            return ["array", *self._array(value), list(value.shape)]
        if kind is list:
            return ["list", *(self.write(part, depth + 1) for part in value)]
        if kind is dict:
            return ["dict", *([self.write(key, depth + 1), self.write(each, depth + 1)] for key, each in value.items())]
        raise NotStorableError

    def _spend(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left < 0:
            raise NotStorableError

    def _once(self, value: Any) -> None:
        """Refuse a value that contains the same mutable object twice, because its copy would contain two objects."""
        if id(value) in self._within:
            raise NotStorableError
        self._within.add(id(value))

    def _integer(self, value: int) -> Stored:
        if value.bit_length() > MAX_SEED_BITS:
            raise NotStorableError
        if -MAX_COUNT <= value <= MAX_COUNT:
            return self._text(value)
        return ["int", self._text(hex(value))]

    def _text(self, value: Any) -> Any:
        """Return a value that JSON can represent. Count the size of its text."""
        if isinstance(value, str):
            self._check(len(value))
        self._spend(len(json.dumps(value)))
        return value

    def _check(self, nbytes: int) -> None:
        """Refuse a large value before converting it."""
        if nbytes > self._left:
            raise NotStorableError

    def _bytes(self, value: bytes) -> str:
        self._check(len(value))
        text: str = self._text(binascii.b2a_base64(value, newline=False).decode())
        return text

    def _array(self, array: Any) -> list[Stored]:
        if array.dtype.kind not in _ARRAY_KINDS:
            raise NotStorableError
        self._check(array.nbytes)
        self._spend(24 * (1 + array.ndim))  # the dtype and the shape
        return [array.dtype.str, self._bytes(array.tobytes())]


def _read(form: Stored, depth: int) -> Any:
    if type(form) is not list:
        if form is None or type(form) in (bool, int, float, str):
            return form
        raise ValueError(f"is not a stored value: {type(form).__name__}")
    if depth > _MAX_DEPTH:
        raise ValueError("is nested too deeply")
    name, *parts = form
    if name in ("list", "tuple"):
        found = [_read(part, depth + 1) for part in parts]
        return tuple(found) if name == "tuple" else found
    if name == "dict":
        return {_read(key, depth + 1): _read(each, depth + 1) for key, each in parts}
    return _READERS[name](*parts)


def _array(dtype: str, data: str, shape: list[int]) -> Any:
    return np.frombuffer(_of_base64(data), np.dtype(dtype)).reshape(shape).copy()


def _scalar(dtype: str, data: str) -> Any:
    return _array(dtype, data, [])[()]


def _of_base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


_READERS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {"array": _array, "scalar": _scalar, "bytes": _of_base64, "float": float, "int": lambda text: int(text, 16)}
)
