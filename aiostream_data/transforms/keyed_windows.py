"""Group rows by key, and emit a window when the group of a key is full."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_NONE = np.empty(0, np.int64)

_ROWS_AT_ONCE = 64
"""Number of rows that are added at once if the number of windows is limited, which often ends after few rows."""

SizeOf = Callable[[int], int]
"""Function that returns the window size of the key with a number, at least 1."""

Ascending = Callable[[Collection[int]], list[int]]
"""Function that returns numbers of keys in the ascending order of the keys."""


class KeyedWindow(NamedTuple):
    """Window of one key: the ascending numbers of its rows, and the number of the key."""

    rows: Numbers
    key: int


class KeyedOrder:
    """Windows of tf.data's ``group_by_window``. Resumable.

    Windows are emitted in the order in which their groups become full. Incomplete windows follow at the end of the
    stream, in the ascending order of their keys.

    Attributes:
        pushed: Number of rows received so far.
        dropped: 0, because every row is in a window.
    """

    def __init__(self, size_of: SizeOf, ascending: Ascending) -> None:
        self._size_of, self._ascending = size_of, ascending
        self.pushed = 0
        self.dropped = 0
        self._open: dict[int, Numbers] = {}
        self._last: list[int] | None = None  # keys to flush at the end, in descending order

    def push(self, lengths: Numbers, limit: int | None = None) -> list[KeyedWindow]:
        """Add rows whose keys have these numbers. Return the windows that the new rows complete, in order.

        Args:
            lengths: Number of the key of each row, int64.
            limit: Maximum number of complete windows, after which no more rows are added; ``pushed`` counts the added
                rows.
        """
        if limit is None:
            return self._push(lengths)
        full: list[KeyedWindow] = []
        start = 0
        while start < len(lengths) and len(full) < limit:
            full += self._push(lengths[start : start + _ROWS_AT_ONCE], limit - len(full))
            start += _ROWS_AT_ONCE
        return full

    def _push(self, lengths: Numbers, limit: int | None = None) -> list[KeyedWindow]:
        if not len(lengths):
            return []
        full, left = self._filled(lengths)
        if limit is not None and len(full) > limit:
            lengths = lengths[: int(full[limit - 1].rows[-1]) + 1 - self.pushed]
            full, left = self._filled(lengths)
        for key, rows in left.items():
            if len(rows):
                self._open[key] = rows
            else:
                self._open.pop(key, None)
        self.pushed += len(lengths)
        return full

    def finish(self, limit: int | None = None) -> list[KeyedWindow]:
        """End the stream. Return up to ``limit`` incomplete windows; further calls return the remaining windows."""
        if self._last is None:
            self._last = self._ascending(self._open)[::-1]
        count = len(self._last) if limit is None else min(limit, len(self._last))
        return [KeyedWindow(self._open.pop(key), key) for key in (self._last.pop() for _ in range(count))]

    def groups_held(self) -> int:
        """Return the number of keys with rows that are not in a window yet."""
        return len(self._open)

    def held(self) -> Numbers:
        """Return the numbers of the rows that are not in a window yet, ascending."""
        return np.sort(np.concatenate([_NONE, *self._open.values()]))

    def rows_held(self) -> int:
        """Return the number of rows that are not in a window yet."""
        return sum(map(len, self._open.values()))

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data.

        Restoring the position also requires the rows that :meth:`held` lists.
        """
        return {"held": self.rows_held()}

    def restore(self, state: dict[str, Any], lengths: Numbers) -> None:
        """Restore a position saved by :meth:`state`. The buffered rows are renumbered from 0.

        Args:
            state: Result of :meth:`state`.
            lengths: Numbers of the keys of the buffered rows, in the same order as the result of :meth:`held`.

        Raises:
            ValueError: The keys do not match the saved state.
        """
        self.pushed, self._open, self._last = 0, {}, None
        if len(lengths) != state["held"] or self.push(lengths):
            raise ValueError(f"the groups held {state['held']} rows, but the {len(lengths)} recomputed rows differ")

    def copy(self) -> KeyedOrder:
        """Return a copy of this order at the same position."""
        other = KeyedOrder(self._size_of, self._ascending)
        other.pushed, other._open = self.pushed, dict(self._open)
        other._last = None if self._last is None else list(self._last)
        return other

    def _filled(self, keys: Numbers) -> tuple[list[KeyedWindow], dict[int, Numbers]]:
        """Return the windows completed by these rows, sorted by last row, and the remaining rows of each key."""
        order = np.argsort(keys, kind="stable")
        distinct, firsts = np.unique(keys[order], return_index=True)
        full: list[KeyedWindow] = []
        left: dict[int, Numbers] = {}
        for key, new in zip(distinct.tolist(), np.split(self.pushed + order, firsts[1:]), strict=True):
            size = self._size_of(key)
            rows = np.concatenate([self._open.get(key, _NONE), new])
            stops = range(size, len(rows) + 1, size)
            full += [KeyedWindow(rows[stop - size : stop], key) for stop in stops]
            left[key] = rows[len(stops) * size :].copy()
        return sorted(full, key=lambda window: int(window.rows[-1])), left
