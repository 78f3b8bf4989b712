"""Stack consecutive rows into batches, and take batches apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.stages.base import Stage
from aiostream_data.plan.operators import Batch
from aiostream_data.records import Chunk, Items
from aiostream_data.transforms import batching
from aiostream_data.transforms.unbatch import unbatch


@dataclass
class BatchStage(Stage):
    """Running form of ``Batch``."""

    _batched: int = 0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Batch = self.node
        order = batching.BatchOrder(node.batch_size, node.drop_remainder)
        batcher = batching.Batcher(order, self.context.services.origins.describe, node.in_parts)
        held = self.context.services.budget.charge(0)
        try:
            async for chunk in inlets[0]:
                nbytes = held.nbytes + chunk.nbytes
                batches = await self.hop(_push, batcher, chunk)
                del chunk
                held.resize(batcher.nbytes)
                await self._send(batches, nbytes - held.nbytes, outlet)
            await self._send(await self.hop(_finish, batcher), held.nbytes, outlet)
        finally:
            held.end()
        outlet.drop(batcher.dropped)

    async def _send(self, batches: Items, nbytes: int, outlet: Outlet) -> None:
        self._batched += sum(map(len, batches.row_ids or ()))
        # What came in and is not carried over went out; asking every array for its size costs far more.
        await outlet.send(batches, max(0, nbytes))

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return self._batched


def _push(batcher: batching.Batcher, chunk: Chunk) -> Items:
    return _as_items(batcher.push(chunk))


def _finish(batcher: batching.Batcher) -> Items:
    return _as_items(batcher.finish())


def _as_items(batches: list[batching.Batch]) -> Items:
    """Return batches as elements; each has the id of its first row, and those of all rows beside it."""
    row_ids = [batch.ids for batch in batches]
    first = np.array([ids[0] for ids in row_ids], np.int64).reshape(-1, 2)
    return Items([batch.element for batch in batches], first, None, row_ids)


@dataclass
class UnbatchStage(Stage):
    """Running form of ``Unbatch``."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        describe = self.context.services.origins.describe
        async for chunk in inlets[0]:
            rows = await self.hop(unbatch, chunk, describe)
            del chunk
            await outlet.send(rows)
