"""Leave rows out by their number: take, skip and shard; and number them: enumerate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.stages.base import OneToOne, Stage
from aiostream_data.plan.operators import Enumerate, Shard, Skip, Take
from aiostream_data.records import Chunk, Columns, Items
from aiostream_data.structure import LEAF, Structure
from aiostream_data.transforms.selection import EnumerateOrder, ShardOrder, SkipOrder, TakeOrder


@dataclass
class TakeStage(Stage):
    """Running form of ``Take``: ends its input as soon as it has enough."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Take = self.node
        order = TakeOrder(node.count)
        while not order.done:
            chunk = await inlets[0].receive()
            if chunk is None:
                return
            part = order.push(len(chunk))
            await outlet.send(chunk.slice(part.start, part.stop))


@dataclass
class SkipStage(Stage):
    """Running form of ``Skip``."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Skip = self.node
        order = SkipOrder(node.count)
        async for chunk in inlets[0]:
            part = order.push(len(chunk))
            rest = chunk.slice(part.start, part.stop)
            outlet.drop(len(chunk) - len(rest))
            await outlet.send(rest)

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows


@dataclass
class ShardStage(Stage):
    """Running form of ``Shard``."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Shard = self.node
        order = ShardOrder(node.num_shards, node.index)
        async for chunk in inlets[0]:
            mine = await self.hop(chunk.take, order.push(len(chunk)))
            outlet.drop(len(chunk) - len(mine))
            await outlet.send(mine)

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows


@dataclass
class EnumerateStage(OneToOne):
    """Running form of ``Enumerate``."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Enumerate = self.node
        order = EnumerateOrder(node.start)
        async for chunk in inlets[0]:
            await outlet.send(await self.hop(_numbered, order, chunk))


def _numbered(order: EnumerateOrder, chunk: Chunk) -> Chunk:
    numbers = order.push(len(chunk))
    if isinstance(chunk, Columns):
        structure = Structure("tuple", (), (LEAF, chunk.structure))
        return Columns(structure, (numbers, *chunk.leaves), chunk.ids, chunk.lease)
    return Items(list(zip(numbers.tolist(), chunk.values, strict=True)), chunk.ids, chunk.lease, chunk.row_ids)
