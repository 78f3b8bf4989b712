"""Decide which rows of a stream are kept: take, skip, shard; and number them.

Each machine is told how many rows come and answers which of them stay, as a slice of the chunk, so
that nothing is copied for it. All are resumable, and none depends on how the stream is cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CardinalityError, PlanError


class TakeOrder:
    """tf.data's ``take(count)``: the first ``count`` rows; -1 takes all."""

    def __init__(self, count: int) -> None:
        _check_count(count)
        self.count = count
        self.taken = 0

    @property
    def done(self) -> bool:
        """True when no later row will be kept, so that reading may stop."""
        return self.taken == self.count

    def push(self, count: int) -> slice:
        """Return which of ``count`` incoming rows are kept."""
        kept = count if self.count == -1 else min(count, self.count - self.taken)
        self.taken += kept
        return slice(0, kept)

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {"taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.taken = state["taken"]


class SkipOrder:
    """tf.data's ``skip(count)``: all but the first ``count`` rows; -1 skips all."""

    def __init__(self, count: int) -> None:
        _check_count(count)
        self.count = count
        self.skipped = 0

    def push(self, count: int) -> slice:
        """Return which of ``count`` incoming rows are kept."""
        lost = count if self.count == -1 else min(count, self.count - self.skipped)
        self.skipped += lost
        return slice(lost, count)

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {"skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.skipped = state["skipped"]


class ShardOrder:
    """tf.data's ``shard(num_shards, index)``: row i of the stream is kept when i mod n is ``index``."""

    def __init__(self, num_shards: int, index: int) -> None:
        if num_shards < 1:
            raise PlanError(f"num_shards must be at least 1, got {num_shards}")
        if not 0 <= index < num_shards:
            raise PlanError(f"index must be from 0 to {num_shards - 1}, got {index}")
        self.num_shards = num_shards
        self.index = index
        self.seen = 0

    def push(self, count: int) -> NDArray[np.int64]:
        """Return which of ``count`` incoming rows are kept, as int64 indices, ascending."""
        first = (self.index - self.seen) % self.num_shards
        self.seen += count
        return np.arange(first, count, self.num_shards)

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {"seen": self.seen}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.seen = state["seen"]


class EnumerateOrder:
    """tf.data's ``enumerate(start)``: a running number for every row."""

    def __init__(self, start: int = 0) -> None:
        self.next = start

    def push(self, count: int) -> NDArray[np.int64]:
        """Return the numbers (int64) of ``count`` incoming rows.

        Raises:
            CardinalityError: A number does not fit into 64 bits.
        """
        if self.next + count > 2**63:
            raise CardinalityError(f"enumerate() numbers rows up to 2**63 - 1, and {self.next:,} + {count:,} are more")
        numbers = self.next + np.arange(count, dtype=np.int64)
        self.next += count
        return numbers

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {"next": self.next}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.next = state["next"]


def _check_count(count: int) -> None:
    if count < -1:
        raise PlanError(f"count must be at least 0, or -1 for all, got {count}")
