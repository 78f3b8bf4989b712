"""Numbers for the keys of groups, and the ascending order of keys."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError

ENTRY_NBYTES: Final = 200
"""Assumed size in bytes of one entry of the table, besides its key."""


class KeyTable:
    """Table of the keys of a stream. The number of a key is its place in the table, and never changes.

    Args:
        operator: Name of the operator, for error messages.

    Attributes:
        nbytes: Estimated size of the table in bytes.
    """

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._numbers: dict[Any, int] = {}
        self._keys: list[Any] = []
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, number: int) -> Any:
        """Return the key with this number."""
        return self._keys[number]

    def numbers(self, keys: Iterable[Any]) -> NDArray[np.int64]:
        """Return the number of each key. New keys are added to the table.

        Raises:
            PlanError: A key is not hashable, or cannot be compared with the other keys.
        """
        return np.array([self.number(key) for key in keys], np.int64)

    def number(self, key: Any) -> int:
        """Return the number of a key; see :meth:`numbers`."""
        key = plain_key(key)
        try:
            known = self._numbers.get(key)
        except TypeError:
            raise self._refusal(
                f"returned {_named(key)}, which is not hashable. Return an int, a str or a tuple."
            ) from None
        return self._add(key) if known is None else known

    def ascending(self, numbers: Collection[int]) -> list[int]:
        """Return the numbers in the ascending order of their keys.

        Raises:
            PlanError: The keys cannot be ordered.
        """
        try:
            return sorted(numbers, key=self._keys.__getitem__)
        except TypeError as error:
            raise self._refusal(f"returned keys without an order: {error}. Return keys of one type.") from None

    def _add(self, key: Any) -> int:
        if isinstance(key, float) and key != key:
            raise self._refusal("returned NaN, which has no place in an order. Return another key.")
        if self._keys:
            try:
                _ = self._keys[0] < key
            except TypeError:
                raise self._refusal(
                    f"returned {_named(self._keys[0])} and {_named(key)}, which have no order. Return keys of one type."
                ) from None
        number = self._numbers[key] = len(self._keys)
        self._keys.append(key)
        self.nbytes += ENTRY_NBYTES + sys.getsizeof(key)
        return number

    def _refusal(self, cause: str) -> PlanError:
        return PlanError(f"the key function of {self._operator}() {cause}")


def plain_key(key: Any) -> Any:
    """Return a NumPy scalar as a Python number, and any other key as it is."""
    return key.item() if isinstance(key, (np.generic, np.ndarray)) and key.ndim == 0 else key


def _named(key: Any) -> str:
    return f"a key of type {type(key).__name__}"
