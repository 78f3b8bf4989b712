"""Reduce the elements of each key to one result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from aiostream_data.rows.kept_nbytes import kept_nbytes
from aiostream_data.transforms.key_table import KeyTable

MEASURED_ROWS: Final = 1024
"""Minimum number of rows between two measurements of all states."""

GROWTH: Final = 1.25
"""Factor by which the number of rows grows between two measurements."""


class KeyedReduction:
    """States of tf.data's ``group_by_reducer``, by key.

    Args:
        table: Table of the keys.
        init: Function of the key that returns the first state.
        reduce: Function ``(state, element)`` that returns the next state.
    """

    def __init__(self, table: KeyTable, init: Callable[[Any], Any], reduce: Callable[[Any, Any], Any]) -> None:
        self._table, self._init, self._reduce = table, init, reduce
        self._states: list[Any] = []
        self._rows = 0
        self._measured_at = 0.0
        self._measured = 0

    def push(self, key: int, element: Any) -> bool:
        """Add an element whose key has this number. Return True if the key is new."""
        is_new = key == len(self._states)
        if is_new:
            self._states.append(self._init(self._table.key(key)))
        self._states[key] = self._reduce(self._states[key], element)
        self._rows += 1
        return is_new

    @property
    def is_due(self) -> bool:
        """True if the states may have grown enough to measure them again."""
        return self._rows >= self._measured_at

    def nbytes(self) -> int:
        """Estimate the size of all states and keys in bytes.

        States are measured from time to time, because measuring them takes as long as reading them.
        """
        if self.is_due:
            self._measured_at = max(self._rows + MEASURED_ROWS, GROWTH * self._rows)
            self._measured = sum(map(kept_nbytes, self._states))
        return self._measured + self._table.nbytes

    def results(self, finalize: Callable[[Any], Any] | None) -> Iterator[tuple[int, Any]]:
        """Yield the number of each key and its result, in the ascending order of the keys."""
        keys: Sequence[int] = self._table.ascending(range(len(self._states)))
        for key in keys:
            yield key, self._states[key] if finalize is None else finalize(self._states[key])
