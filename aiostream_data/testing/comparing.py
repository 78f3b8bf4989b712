"""Bitwise comparison of elements: nested structures of arrays, ragged rows, numbers, text and bytes."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, family, type_name

Compare = Callable[[Any, Any], bool]
"""Type of a function (expected, found) that returns True if both elements count as equal."""

_SHOWN = 120
"""Maximum number of characters of a value in an error message."""


def canonical(value: Any) -> Hashable:
    """Return a hashable key for a value; two values of the same type and bits have equal keys.

    Arrays are compared by dtype, shape and bytes, so NaN equals NaN and -0.0 differs from 0.0. Dicts with a different
    order of keys are not equal. Device arrays, tensors and images are compared as host arrays. Other objects are
    compared directly if they are hashable, and otherwise by their pickled bytes.
    """
    kind = type(value)
    if kind in (int, bool, str, bytes, type(None)):
        return kind.__name__, value
    if kind is float:
        return "float", value.hex()
    if isinstance(value, (np.ndarray, np.generic)):
        return kind.__name__, *_bits(np.asarray(value))
    if (parts := parts_of(value)) is not None:
        return kind.__qualname__, tuple((key, canonical(part)) for key, part in parts.items())
    if (bits := _foreign_bits(value)) is not None:
        return type_name(kind), *bits
    if hasattr(value, "__cuda_array_interface__"):
        return kind.__qualname__, *_bits(np.asarray(value.get()))
    try:
        hash(value)
    except TypeError:
        return kind.__qualname__, pickle.dumps(value)
    return kind.__qualname__, value


def parts_of(value: Any) -> dict[Any, Any] | None:
    """Return the items of a dict, sequence or dataclass by key, index or field name, or None for any other value."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, list)):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _bits(array: NDArray[Any]) -> tuple[Hashable, ...]:
    has_objects = array.dtype == object or array.dtype.kind == "T"  # the bytes of both are addresses
    held = tuple(map(canonical, array.ravel().tolist())) if has_objects else array.tobytes()
    return array.dtype.str, array.shape, held


def _foreign_bits(value: Any) -> tuple[Hashable, ...] | None:
    """Return the content of a tensor or image as a host array, or None for any other value."""
    try:
        array = array_of(value) if family(type(value)) else None
    except NoNumpyFormError:
        return None
    return None if array is None else _bits(array)


def same(expected: Any, found: Any) -> bool:
    """Return True if both values have the same types, the same structure and the same bits; see :func:`canonical`."""
    return canonical(expected) == canonical(found)


def difference(expected: Any, found: Any, path: str = "element") -> str:
    """Describe the first difference between two elements."""
    if type(expected) is not type(found):
        return f"{path}: expected {kind_of(expected)}, found {kind_of(found)}"
    if isinstance(expected, np.ndarray):
        return _array_difference(expected, found, path)
    wanted, got = parts_of(expected), parts_of(found)
    if wanted is None or got is None:
        return f"{path}: expected {shown(expected)}, found {shown(found)}"
    if list(wanted) != list(got):
        return f"{path}: expected {_keys(wanted)}, found {_keys(got)}"
    for key, part in wanted.items():
        if not same(part, got[key]):
            return difference(part, got[key], f"{path}[{key!r}]")
    return f"{path}: no difference found between {shown(expected)} and {shown(found)}"


def _array_difference(expected: NDArray[Any], found: NDArray[Any], path: str) -> str:
    if (expected.dtype, expected.shape) != (found.dtype, found.shape):
        return f"{path}: expected {kind_of(expected)}, found {kind_of(found)}"
    for index in np.ndindex(expected.shape):
        if not same(expected[index], found[index]):
            place = f"{path}[{', '.join(map(str, index))}]" if index else path
            return f"{place}: expected {shown(expected[index])}, found {shown(found[index])}"
    return f"{path}: no difference found between {shown(expected)} and {shown(found)}"


def _keys(parts: Mapping[Any, Any]) -> str:
    keys = list(parts)
    return f"{len(keys)} parts" if keys == list(range(len(keys))) else f"the keys {keys!r}"


def kind_of(value: Any) -> str:
    """Describe the type of a value, with dtype and shape if it is an array."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    return f"{type(value).__name__} {shown(value)}"


def shown(value: Any) -> str:
    """Format a value as short text on one line."""
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def sequence_difference(expected: Sequence[Any], found: Sequence[Any], compare: Compare) -> str | None:
    """Describe the first difference between two sequences of elements, or return None if the sequences are equal."""
    for place, (wanted, got) in enumerate(zip(expected, found, strict=False)):
        if not compare(wanted, got):
            return f"element {place} of the rest differs: {difference(wanted, got)}"
    if len(found) < len(expected):
        return f"the rest ends after {len(found)} elements; {shown(expected[len(found)])} should follow"
    if len(found) > len(expected):
        return f"the rest has {len(found)} elements; {shown(found[len(expected)])} should not follow"
    return None


def multiset_difference(expected: Iterable[Any], found: Iterable[Any]) -> str | None:
    """Describe an element that is missing or occurs too often, or return None if both multisets are equal."""
    wanted, got = list(expected), list(found)
    wanted_counts, got_counts = Counter(map(canonical, wanted)), Counter(map(canonical, got))
    for counts, others, elements, what in (
        (wanted_counts, got_counts, wanted, "lost"),
        (got_counts, wanted_counts, got, "given too often"),
    ):
        for element in elements:
            key = canonical(element)
            if counts[key] > others[key]:
                number = sum((counts - others).values())
                return f"{number} of {len(wanted)} elements were {what}, such as {shown(element)}"
    return None
