"""Write elements for the command line: as JSON, and as short text."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

_MOST = 60
"""Maximum number of characters of one value in short text."""

_TIMES = "mM"
"""Kinds of the dtypes of durations and times."""


def as_json(element: Any) -> str:
    """Return an element as one line of strict JSON.

    Arrays become lists, and bytes become ``{"base64": "..."}``. NaN, infinite numbers and missing times become null.
    Times are text as in ISO 8601, and durations are text with their unit.
    """
    return json.dumps(_plain(element), ensure_ascii=False, allow_nan=False)


def as_text(element: Any) -> str:
    """Return an element as one line. Long values are cut, and arrays are shown by their type."""
    if isinstance(element, dict):
        return "{" + ", ".join(f"{name}: {as_text(value)}" for name, value in element.items()) + "}"
    if isinstance(element, np.ndarray) and element.size > 8:
        return f"{element.dtype}{list(element.shape)}"
    if isinstance(element, (bytes, bytearray, memoryview)) and len(element) > _MOST:
        return f"{bytes(element[: _MOST // 3])!r}... ({len(element):,} bytes)"
    if isinstance(element, (np.ndarray, np.generic)) and element.dtype.kind in _TIMES:
        element = _times(element)
    text = repr(element.tolist() if isinstance(element, np.ndarray) else element)
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."


def schema_of(element: Any) -> dict[str, str]:
    """Return the type of each value of an element, by its name. A value without a name has the name ``""``."""
    named = element if isinstance(element, dict) else {"": element}
    found: dict[str, str] = {}
    for name, value in named.items():
        if isinstance(value, dict):
            found.update({f"{name}.{inner}": kind for inner, kind in schema_of(value).items()})
        else:
            found[str(name)] = _type_of(value)
    return found


def _type_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return str(value.dtype) if isinstance(value, np.generic) else type(value).__name__


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _times(value) if value.dtype.kind in _TIMES else _plain(value.tolist())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _times(value: np.ndarray[Any, Any] | np.generic) -> Any:
    """Return times and durations as text, in nested lists for an array. NumPy would return numbers without a unit."""
    if isinstance(value, np.ndarray) and value.ndim:
        return [_times(inner) for inner in value]
    one = np.asarray(value)[()]
    if np.isnat(one):
        return None
    return str(one) if one.dtype.kind == "m" else str(np.datetime_as_string(one))
