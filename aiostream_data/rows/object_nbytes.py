"""Estimate the size in bytes of an element that is a Python object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.array_likes import image_nbytes

ITEM_NBYTES_GUESS: Final = 64
"""Assumed size in bytes of an object without the buffer protocol."""

MAX_DEPTH: Final = 256
"""Maximum depth of nested containers in an element whose size is estimated. Deeper elements probably contain
themselves."""

_SAMPLE: Final = 16
"""Maximum number of objects of an array that are measured."""

_PLACES: Final = np.arange(_SAMPLE) * ((5**0.5 - 1) / 2) % 1

_CONTAINERS: Final = (dict, tuple, list)
_NUMBERS: Final = frozenset({int, float, bool, complex, type(None)})


def object_nbytes(value: Any) -> int:
    """Estimate the size of an element in bytes. The result is exact for arrays and bytes. Never raises.

    Containers are read with a list of iterators in place of recursion: recursion through ``sum`` and ``map`` uses the C
    stack, which overflows on threads with a small stack before Python reaches its recursion limit.
    """
    if type(value) is np.ndarray:
        return value.nbytes
    if type(value) is str or type(value) is bytes:
        return len(value)
    if not isinstance(value, _CONTAINERS):
        return _leaf_nbytes(value)
    if type(value) is list and _NUMBERS.issuperset(map(type, value)):
        return ITEM_NBYTES_GUESS * len(value)
    nbytes, containers = 0, [_parts_of(value)]
    while containers:
        for part in containers[-1]:
            kind = type(part)
            if kind in _NUMBERS:
                nbytes += ITEM_NBYTES_GUESS
            elif kind is str or kind is bytes:
                nbytes += len(part)
            elif isinstance(part, _CONTAINERS):
                if len(containers) == MAX_DEPTH:  # the value contains itself
                    return ITEM_NBYTES_GUESS
                containers.append(_parts_of(part))
                break
            else:
                nbytes += _leaf_nbytes(part)
        else:
            containers.pop()
    return nbytes


def sample_of(count: int) -> slice | NDArray[np.int64]:
    """Return the indices of a few of ``count`` objects, for :func:`objects_nbytes`.

    The distances between the indices differ, so that a repeating pattern of objects does not distort the estimate.
    """
    return slice(None) if count <= _SAMPLE else (_PLACES * count).astype(np.int64)


def objects_nbytes(sample: NDArray[Any], count: int) -> int:
    """Estimate the size of ``count`` objects in bytes from some of them."""
    some = sample.tolist()
    return sum(map(object_nbytes, some)) * count // len(some) if some else 0


def _parts_of(container: Any) -> Iterator[Any]:
    return iter(container.values() if isinstance(container, dict) else container)


def _leaf_nbytes(value: Any) -> int:
    if isinstance(value, np.generic):
        return value.nbytes
    if type(value) in _NUMBERS:
        return ITEM_NBYTES_GUESS
    try:
        nbytes = getattr(value, "_held_nbytes", None) or _sparse_nbytes(value) or getattr(value, "nbytes", None)
    except Exception:  # noqa: BLE001 - property of a user object that raised an error
        return ITEM_NBYTES_GUESS
    if isinstance(nbytes, int):
        return nbytes
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    return image_nbytes(value) or ITEM_NBYTES_GUESS


def _sparse_nbytes(value: Any) -> int:
    """Return the size of a sparse array of SciPy in bytes, or 0 for any other object."""
    if not type(value).__module__.startswith("scipy.sparse"):
        return 0
    parts = (part for held in vars(value).values() for part in (held if isinstance(held, tuple) else (held,)))
    return sum(getattr(part, "nbytes", 0) for part in parts)
