"""Cut a stream into batches of consecutive rows with a bounded total cost."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError

Numbers = NDArray[np.int64]
_NONE = np.empty(0, np.int64)

MAX_COST: Final = 1 << 40
"""Upper bound for ``max_cost``, which keeps sums of costs far from 64-bit overflow."""

_FIRST_LOOK: Final = 64
"""Initial number of rows searched for the end of a batch. Each further search covers twice as many rows."""


class CostOrder:
    """Batches of consecutive rows whose total cost does not exceed ``max_cost``.

    A batch is closed when the next row would raise its cost above ``max_cost``. A row that costs more than ``max_cost``
    forms a batch of one row.

    Args:
        max_cost: Maximum cost of a batch, from 1 to :data:`MAX_COST`.
        padded: If True, a batch costs its row count times the largest row cost. If ``padded`` is False, a batch costs
            the sum of its row costs.
        batch_size: Maximum number of rows in a batch; None for no limit.
        drop_remainder: Drop the last batch if it has room for another row.

    Attributes:
        given: Number of rows emitted in batches so far.
        dropped: Number of rows dropped at the end of the stream.
    """

    def __init__(
        self, max_cost: int, padded: bool = True, batch_size: int | None = None, drop_remainder: bool = False
    ) -> None:
        if not 1 <= max_cost <= MAX_COST:
            raise PlanError(f"max_cost must be from 1 to {MAX_COST}, got {max_cost}")
        if batch_size is not None and batch_size < 1:
            raise PlanError(f"batch_size must be at least 1, got {batch_size}")
        self.max_cost = max_cost
        self.padded = padded
        self.batch_size = batch_size
        self.drop_remainder = drop_remainder
        self.given = 0
        self.dropped = 0
        self._open: list[Numbers] = []
        self._rows = 0
        self._cost = 0  # largest cost in the open batch if padded, else the sum
        self._look = _FIRST_LOOK

    def push(self, numbers: Numbers, costs: Numbers) -> list[Numbers]:
        """Add rows with these ascending numbers and these costs (0 or more each).

        Return the batches completed by the new rows.
        """
        costs = np.minimum(costs, self.max_cost + 1)
        batches = []
        start = 0
        while start < len(costs):
            stop = start + self._fitting(costs[start:])
            if stop == start and not self._rows:
                stop += 1  # the row exceeds max_cost: a batch of its own
            self._take(numbers[start:stop], costs[start:stop])
            if stop < len(costs) or not self._has_room_for(0):
                batches.append(self._closed())
            start = stop
        return batches

    def finish(self) -> list[Numbers]:
        """End the stream. Return the last batch, or an empty list if that batch is empty or dropped."""
        if not self._rows:
            return []
        if self.drop_remainder and self._has_room_for(1):
            self.dropped += self._rows
            self._open, self._rows = [], 0
            return []
        return [self._closed()]

    def held(self) -> Numbers:
        """Return the numbers of the rows that are not in a batch yet, ascending."""
        return np.concatenate([_NONE, *self._open])

    def _fitting(self, costs: Numbers) -> int:
        """Return how many of the next rows fit into the open batch."""
        look = self._look
        while True:
            fitting = self._fitting_of(costs[:look])
            if fitting < look or look >= len(costs):
                return fitting
            look *= 2

    def _fitting_of(self, costs: Numbers) -> int:
        if self.batch_size is not None:
            costs = costs[: self.batch_size - self._rows]
        if not self.padded:
            return int(np.count_nonzero(self._cost + np.cumsum(costs) <= self.max_cost))
        largest = np.maximum(np.maximum.accumulate(costs), self._cost)
        rows = np.arange(self._rows + 1, self._rows + len(costs) + 1)
        return int(np.count_nonzero((largest == 0) | (rows <= self.max_cost // np.maximum(largest, 1))))

    def _has_room_for(self, cost: int) -> bool:
        """Return True if a row of the given cost fits into the open batch."""
        return self._fitting_of(np.array([cost], np.int64)) > 0

    def _take(self, numbers: Numbers, costs: Numbers) -> None:
        if len(numbers):
            self._open.append(numbers)
            self._rows += len(numbers)
            added = int(costs.max()) if self.padded else int(costs.sum())
            self._cost = max(self._cost, added) if self.padded else self._cost + added

    def _closed(self) -> Numbers:
        batch = self.held()
        self.given += len(batch)
        self._look = max(_FIRST_LOOK, 2 * len(batch))
        self._open, self._rows, self._cost = [], 0, 0
        return batch
