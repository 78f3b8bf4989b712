"""Inner datasets that a user function has returned, until they are opened."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.stages.interleaving.inner_rows import Inner, rows_of_each
from aiostream_data.plan.operators import Batch
from aiostream_data.rows.lineage import Lineage


class MadeDatasets:
    """Inner datasets that the user's function returned, in order.

    Args:
        inners: The datasets.
        outer: Lineage of the elements from which they were made. It can have more rows, at the end.

    Attributes:
        rows: Number of rows of each dataset, int64; -1 unless the dataset is small.
    """

    def __init__(self, inners: Sequence[Inner], outer: Lineage) -> None:
        self._inners, self._outer = inners, outer
        self._next = 0
        self.rows = rows_of_each(inners)

    @property
    def left(self) -> int:
        """Number of datasets that were not taken."""
        return len(self._inners) - self._next

    def take(self) -> tuple[Inner, Lineage]:
        """Take the next dataset. Return it and the lineage of its outer row."""
        inners, _, outer = self._take(self._next + 1)
        return inners[0], outer

    def take_small(self) -> tuple[Sequence[Inner], NDArray[np.int64], Lineage]:
        """Take all small datasets before the next other one. Return them, their numbers of rows, and their lineage."""
        large = np.flatnonzero(self.rows[self._next :] < 0)
        return self._take(self._next + int(large[0]) if len(large) else len(self._inners))

    def put_back(self, count: int) -> None:
        """Put back the last ``count`` datasets that were taken. Those with batches are no longer small."""
        self._next -= count
        for place in range(self._next, self._next + count):
            if isinstance(self._inners[place], Batch):
                self.rows[place] = -1

    def _take(self, stop: int) -> tuple[Sequence[Inner], NDArray[np.int64], Lineage]:
        start, self._next = self._next, stop
        return self._inners[start:stop], self.rows[start:stop], self._outer.slice(start, stop)
