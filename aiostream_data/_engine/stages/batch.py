"""Stack consecutive rows into batches, and take batches apart again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aiostream_data._engine.tail import Step
from aiostream_data.plan.operators import Batch
from aiostream_data.records import Chunk, Items
from aiostream_data.transforms import batching
from aiostream_data.transforms.unbatch import unbatch


@dataclass
class BatchStep(Step):
    """Running form of ``Batch``."""

    def __post_init__(self) -> None:
        node: Batch = self.node
        order = batching.BatchOrder(node.batch_size, node.drop_remainder)
        self._batcher = batching.Batcher(order, self.context.services.origins.describe, node.in_parts)
        self._held = self.context.services.budget.charge(0)
        self._batched = 0
        self._batched_nbytes = 0

    def push(self, chunk: Chunk) -> Chunk | None:
        nbytes = self._held.nbytes + chunk.nbytes
        batches = self._batcher.push(chunk, self.input_is_own)
        self._held.resize(self._batcher.nbytes)
        # What came in and is not carried over went out; asking every array for its size costs far more.
        self._batched_nbytes = max(0, nbytes - self._held.nbytes)
        return self._as_items(batches)

    def finish(self) -> Iterator[Chunk]:
        self._batched_nbytes = self._held.nbytes
        last = self._as_items(self._batcher.finish())
        self.dropped += self._batcher.dropped
        if last is not None:
            yield last

    def close(self) -> None:
        self._held.end()

    def nbytes_of(self, chunk: Chunk) -> int:
        return self._batched_nbytes

    def rows_accounted(self) -> int | None:
        return self._batched

    def _as_items(self, batches: list[batching.Batch]) -> Items | None:
        """Return batches as elements; each has the id of its first row, and those of all rows beside it."""
        if not batches:
            return None
        row_ids = [batch.ids for batch in batches]
        self._batched += sum(map(len, row_ids))
        first = np.array([ids[0] for ids in row_ids], np.int64).reshape(-1, 2)
        return Items([batch.element for batch in batches], first, None, row_ids)


@dataclass
class UnbatchStep(Step):
    """Running form of ``Unbatch``."""

    def push(self, chunk: Chunk) -> Chunk | None:
        return unbatch(chunk, self.context.services.origins.describe)

    def rows_accounted(self) -> int | None:
        return None
