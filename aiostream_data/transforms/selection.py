"""Row selection (take, skip, shard) and row numbering (enumerate).

Each class receives the number of incoming rows and returns which of these rows to keep. :class:`TakeOrder` and
:class:`SkipOrder` return slices, so rows are not copied. All classes are resumable, and their results do not depend on
chunk boundaries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CardinalityError, PlanError


class TakeOrder:
    """Row selection of tf.data's ``take(count)``: the first ``count`` rows, or all rows if ``count`` is -1."""

    def __init__(self, count: int) -> None:
        _check_count(count)
        self.count = count
        self.taken = 0

    @property
    def done(self) -> bool:
        """True if no further row will be kept. The caller can then stop reading."""
        return self.taken == self.count

    def push(self, count: int) -> slice:
        """Return which of the ``count`` incoming rows to keep, as a slice."""
        kept = count if self.count == -1 else min(count, self.count - self.taken)
        self.taken += kept
        return slice(0, kept)

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data."""
        return {"taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`."""
        self.taken = state["taken"]


class SkipOrder:
    """Row selection of tf.data's ``skip(count)``: all rows except the first ``count``; if ``count`` is -1, no rows."""

    def __init__(self, count: int) -> None:
        _check_count(count)
        self.count = count
        self.skipped = 0

    def push(self, count: int) -> slice:
        """Return which of the ``count`` incoming rows to keep, as a slice."""
        lost = count if self.count == -1 else min(count, self.count - self.skipped)
        self.skipped += lost
        return slice(lost, count)

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data."""
        return {"skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`."""
        self.skipped = state["skipped"]


class ShardOrder:
    """Row selection of tf.data's ``shard(num_shards, index)``: rows whose number modulo ``num_shards`` is ``index``."""

    def __init__(self, num_shards: int, index: int) -> None:
        if num_shards < 1:
            raise PlanError(f"num_shards must be at least 1, got {num_shards}")
        if not 0 <= index < num_shards:
            raise PlanError(f"index must be from 0 to {num_shards - 1}, got {index}")
        self.num_shards = num_shards
        self.index = index
        self.seen = 0

    def push(self, count: int) -> NDArray[np.int64]:
        """Return the indices of the incoming rows to keep, as int64 in ascending order."""
        first = (self.index - self.seen) % self.num_shards
        self.seen += count
        return np.arange(first, count, self.num_shards)

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data."""
        return {"seen": self.seen}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`."""
        self.seen = state["seen"]


class EnumerateOrder:
    """Row numbering of tf.data's ``enumerate(start)``."""

    def __init__(self, start: int = 0) -> None:
        self.next = start

    def push(self, count: int) -> NDArray[np.int64]:
        """Return the row numbers of the next ``count`` incoming rows, as int64.

        Raises:
            CardinalityError: A row number exceeds 2**63 - 1.
        """
        if self.next + count > 2**63:
            raise CardinalityError(
                f"cannot enumerate {count:,} more rows from {self.next:,} on: the largest number is 2**63 - 1. "
                "Pass a smaller start to enumerate()."
            )
        numbers = self.next + np.arange(count, dtype=np.int64)
        self.next += count
        return numbers

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data."""
        return {"next": self.next}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`."""
        self.next = state["next"]


def _check_count(count: int) -> None:
    if count < -1:
        raise PlanError(f"count must be at least 0, or -1 for all, got {count}")
