"""Give rows in random order out of a bounded buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.pacing import rows_of_a_chunk
from aiostream_data._engine.stages.base import OneToOne
from aiostream_data.errors import MemoryBudgetError
from aiostream_data.plan.operators import Shuffle
from aiostream_data.transforms.shuffle import ShuffleBuffer, ShuffleOrder


@dataclass
class ShuffleStage(OneToOne):
    """Running form of ``Shuffle``; rows move on a worker thread, one hop per chunk."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Shuffle = self.node
        epoch = self.context.epoch if node.reshuffle_each_iteration else 0
        key = self.context.key(node, node.seed, "shuffle", epoch)
        buffer = ShuffleBuffer(ShuffleOrder(node.buffer_size, key))
        budget = self.context.services.budget
        held = budget.charge(0)
        try:
            async for chunk in inlets[0]:
                shuffled = await self.hop(buffer.push, chunk)
                del chunk
                held.resize(buffer.nbytes)
                self._check_fits(len(buffer), buffer.nbytes, budget.limit)
                if shuffled is not None:
                    await outlet.send(shuffled)
            rows_at_once = rows_of_a_chunk(len(buffer), buffer.nbytes)
            while (shuffled := await self.hop(buffer.drain, rows_at_once)) is not None:
                held.resize(buffer.nbytes)
                await outlet.send(shuffled)
        finally:
            held.end()

    def _check_fits(self, rows: int, nbytes: int, limit: int) -> None:
        if nbytes > limit and rows < self.node.buffer_size:
            raise MemoryBudgetError(
                f"shuffle({self.node.buffer_size}) already holds {nbytes} bytes in {rows} rows, more than the memory "
                f"limit of {limit} bytes; use a smaller buffer_size, shuffle before decoding, or open the data set "
                "with a larger memory_limit"
            )
