"""Stack consecutive rows into batches, and take batches apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.stages.base import Stage
from aiostream_data.plan.operators import Batch
from aiostream_data.records import Items
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
                batches = await self.hop(batcher.push, chunk)
                del chunk
                held.resize(batcher.nbytes)
                await self._send(batches, outlet)
            await self._send(await self.hop(batcher.finish), outlet)
        finally:
            held.end()
        outlet.drop(batcher.dropped)

    async def _send(self, batches: list[batching.Batch], outlet: Outlet) -> None:
        if batches:
            row_ids = [batch.ids for batch in batches]
            self._batched += sum(map(len, row_ids))
            first = np.stack([ids[0] for ids in row_ids])
            await outlet.send(Items([batch.element for batch in batches], first, None, row_ids))

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return self._batched


@dataclass
class UnbatchStage(Stage):
    """Running form of ``Unbatch``."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        describe = self.context.services.origins.describe
        async for chunk in inlets[0]:
            rows = await self.hop(unbatch, chunk, describe)
            del chunk
            await outlet.send(rows)
