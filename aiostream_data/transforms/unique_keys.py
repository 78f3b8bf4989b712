"""Keys of ``unique``: values in a small form that is equal for equal keys, and the set of the keys seen so far."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aiostream_data.errors import PlanError

if TYPE_CHECKING:
    from aiostream_data.transforms.spilled_keys import SpilledKeys

MAX_TEXT: Final = 64
"""Length of the longest string or bytes that is kept as a key. A longer key is replaced by its hash."""

SLOT_NBYTES: Final = 80
"""Estimated size of the places of one key in a set and in a list, in bytes."""

_DIGEST_NBYTES: Final = 16


@dataclass(frozen=True, slots=True)
class KeyMark:
    """Key that stands for a value: the hash of a long string, or NaN, which is not equal to itself."""

    kind: str
    digest: bytes = b""


_NAN: Final = KeyMark("nan")


def small_key(value: Any) -> Any:
    """Return a small hashable object. Objects are equal exactly if their values are equal, and all NaNs are equal.

    Values are equal as in Python: 1, 1.0, True and NumPy's 1 are equal. Long strings are compared by a 128-bit hash.

    Raises:
        PlanError: The value is not a number, string, bytes, None, or a tuple of these.
    """
    kind = type(value)
    if kind is int or kind is bool or value is None:
        return value
    if kind is str or kind is bytes:
        return value if len(value) <= MAX_TEXT else _hashed(value)
    if kind is float or kind is complex:
        return value if value == value else _NAN
    if isinstance(value, np.generic) or (kind is np.ndarray and value.shape == ()):
        return _of_scalar(np.asarray(value))
    if isinstance(value, tuple):
        return tuple(map(small_key, value))
    if isinstance(value, str):  # of a subclass, such as an enum
        return small_key(str.__str__(value))
    for base in (bytes, int, float):
        if isinstance(value, base):
            return small_key(base(value))  # type: ignore[arg-type]
    name = f"{kind.__name__} of shape {value.shape}" if kind is np.ndarray else kind.__name__
    raise PlanError(
        f"the keys of unique() must be numbers, strings, bytes, None or tuples of these, but a key is a {name}. "
        "Pass key=, a function that returns such a value for an element."
    )


def _hashed(value: str | bytes) -> KeyMark:
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return KeyMark(type(value).__name__, blake2b(raw, digest_size=_DIGEST_NBYTES).digest())


def _of_scalar(array: Any) -> Any:
    if array.dtype.kind in "mM":
        return array.dtype.str, int(array.view(np.int64))
    return small_key(array.item())


def key_nbytes(key: Any) -> int:
    """Estimate the size of a small key in bytes."""
    nbytes = sys.getsizeof(key)
    if type(key) is tuple:
        return nbytes + sum(map(key_nbytes, key))
    return nbytes + sys.getsizeof(key.digest) if type(key) is KeyMark else nbytes


def as_plain(key: Any) -> Any:
    """Return a small key as a value of numbers, strings, bytes, tuples and dicts. A dict stands for a mark."""
    if type(key) is KeyMark:
        return {key.kind: key.digest}
    return tuple(map(as_plain, key)) if type(key) is tuple else key


def from_plain(value: Any) -> Any:
    """Return the small key that :func:`as_plain` converted."""
    if type(value) is dict:
        ((kind, digest),) = value.items()
        return KeyMark(kind, digest)
    return tuple(map(from_plain, value)) if type(value) is tuple else value


class UniqueKeys:
    """Keys seen so far, in the order in which they were seen first. The owner must close the object.

    Args:
        most_ordered: Number of leading keys whose order is kept.
        folder: Folder for keys that do not fit into memory; None keeps all keys in memory.
        spill_nbytes: Size of all keys in bytes above which they move to disk.

    Attributes:
        first: The leading keys, in order.
        nbytes: Estimated size of all keys in bytes.
    """

    def __init__(self, most_ordered: int, folder: str | None = None, spill_nbytes: int = 0) -> None:
        self._most_ordered = most_ordered
        self._folder, self._spill_nbytes = folder, spill_nbytes
        self._spilled: SpilledKeys | None = None
        self._seen: set[Any] = set()
        self.first: list[Any] = []
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._seen) if self._spilled is None else len(self._spilled)

    @property
    def nbytes(self) -> int:
        """Estimated size of the keys in memory, in bytes."""
        return self._nbytes if self._spilled is None else self._spilled.nbytes

    def add(self, key: Any) -> bool:
        """Add a small key. Return True if the key is new.

        Raises:
            SpillError: The keys do not fit into memory, and cannot be written to disk.
        """
        if self._spilled is not None:
            return self._spilled.add(key)
        if key in self._seen:
            return False
        self._seen.add(key)
        self._nbytes += key_nbytes(key) + SLOT_NBYTES
        if len(self.first) < self._most_ordered:
            self.first.append(key)
        elif self._folder is not None and self._nbytes > self._spill_nbytes:
            from aiostream_data.transforms.spilled_keys import SpilledKeys  # SQLite, which some systems lack

            self._spilled = SpilledKeys(self._folder, self._spill_nbytes)
            self._spilled.add_all(self._seen)
            self._seen.clear()
        return True

    def close(self) -> None:
        """Release all keys except the leading ones."""
        self._seen = set(self.first)
        if self._spilled is not None:
            self._spilled.close()

    def push(self, values: Sequence[Any]) -> tuple[list[int], int, PlanError | None]:
        """Add the keys of consecutive rows.

        Returns:
            Indices of the rows with new keys, number of processed rows, and the error of the next row, if any.
        """
        new: list[int] = []
        for row, value in enumerate(values):
            try:
                if self.add(small_key(value)):
                    new.append(row)
            except PlanError as error:
                return new, row, error
        return new, len(values), None
