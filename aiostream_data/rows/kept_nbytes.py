"""Estimate the size in bytes of an object that a user function keeps, with all objects that it refers to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from aiostream_data.rows.object_nbytes import ITEM_NBYTES_GUESS, object_nbytes

_GROUPS: Final = (list, tuple, set, frozenset, deque)
_PLAIN: Final = frozenset({int, float, bool, complex, type(None), str, bytes, bytearray})
_NOT_KEPT: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
"""Types of program code, such as classes and functions. Code that an object refers to does not count."""


def kept_nbytes(value: Any) -> int:
    """Estimate the size of an object, its attributes and its items in bytes. Never raises.

    Each object counts once, even if several parts refer to it. The result is exact for arrays and bytes.
    """
    nbytes, seen, left = 0, {id(value)}, [value]
    while left:
        part = left.pop()
        parts = _parts_of(part)
        if parts is None:
            nbytes += object_nbytes(part)
            continue
        nbytes += ITEM_NBYTES_GUESS
        for each in parts:
            if type(each) in _PLAIN:
                nbytes += object_nbytes(each)
            elif id(each) not in seen:
                seen.add(id(each))
                left.append(each)
    return nbytes


def _parts_of(value: Any) -> Iterable[Any] | None:
    """Return the objects that a container or an object of a user's class refers to, or None for any other object."""
    if isinstance(value, (np.ndarray, np.generic, *_NOT_KEPT)):
        return None
    try:
        if isinstance(value, dict):
            return [*value.keys(), *value.values()]
        if isinstance(value, _GROUPS):
            return list(value)  # another thread may change the original
        if hasattr(value, "nbytes"):
            return None
        parts = [getattr(value, name) for name in _slots(type(value)) if hasattr(value, name)]
        attributes = getattr(value, "__dict__", None)
    except Exception:  # noqa: BLE001 - property of a user object that raised an error
        return None
    return [*parts, *attributes.values()] if isinstance(attributes, Mapping) else parts or None


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return [name for name in names if name not in ("__dict__", "__weakref__")]
