"""Leave rows out by their number: take, skip and shard; and number them: enumerate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.position import State, taken_up
from aiostream_data._engine.stages.base import OneToOne, Stage
from aiostream_data._engine.state_writer import BookWriter
from aiostream_data.lineage import NUMBERED, Lineage, last_ordinals, with_pair, without_last_pair
from aiostream_data.plan.operators import Enumerate, Shard, Skip, Take
from aiostream_data.records import Chunk, Columns, Items
from aiostream_data.structure import LEAF, Structure
from aiostream_data.transforms.selection import EnumerateOrder, ShardOrder, SkipOrder, TakeOrder


@dataclass
class TakeStage(Stage):
    """Running form of ``Take``: ends its input as soon as it has enough."""

    def __post_init__(self) -> None:
        node: Take = self.node
        self._order = TakeOrder(node.count)
        self._taken = 0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        while not self._order.done:
            chunk = await inlets[0].receive()
            if chunk is None:
                return
            part = self._order.push(len(chunk))
            await outlet.send(chunk.slice(part.start, part.stop))

    def at(self, rows: int, book: BookWriter) -> State:
        return {"op": "take", "taken": self._taken + rows, "input": self.inputs[0].at(rows, book)}

    def resume(self, state: State) -> Sequence[State]:
        state = taken_up(state, "take")
        self._taken = state["taken"]
        self._order.restore(state)
        return (state["input"],)


@dataclass
class SkipStage(Stage):
    """Running form of ``Skip``."""

    def __post_init__(self) -> None:
        node: Skip = self.node
        self._order = SkipOrder(node.count)
        self._skipped = 0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        async for chunk in inlets[0]:
            part = self._order.push(len(chunk))
            rest = chunk.slice(part.start, part.stop)
            outlet.drop(len(chunk) - len(rest))
            await outlet.send(rest)

    def at(self, rows: int, book: BookWriter) -> State:
        if rows == 0:  # rows that are still to be skipped must not be counted twice
            return {"op": "skip", "skipped": self._skipped, "input": self.inputs[0].at(0, book)}
        before = self._order.count - self._skipped
        return {"op": "skip", "skipped": self._order.count, "input": self.inputs[0].at(before + rows, book)}

    def forget(self, rows: int) -> None:
        if rows:
            self.inputs[0].forget(self._order.count - self._skipped + rows)

    def resume(self, state: State) -> Sequence[State]:
        state = taken_up(state, "skip")
        self._skipped = state["skipped"]
        self._order.restore(state)
        return (state["input"],)

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows


@dataclass
class ShardStage(Stage):
    """Running form of ``Shard``."""

    def __post_init__(self) -> None:
        node: Shard = self.node
        self._order = ShardOrder(node.num_shards, node.index)
        self._seen = 0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        async for chunk in inlets[0]:
            mine = await self.hop(chunk.take, self._order.push(len(chunk)))
            outlet.drop(len(chunk) - len(mine))
            await outlet.send(mine)

    def at(self, rows: int, book: BookWriter) -> State:
        seen = self._input_rows(rows)
        return {"op": "shard", "seen": self._seen + seen, "input": self.inputs[0].at(seen, book)}

    def forget(self, rows: int) -> None:
        self.inputs[0].forget(self._input_rows(rows))

    def resume(self, state: State) -> Sequence[State]:
        state = taken_up(state, "shard")
        self._seen = state["seen"]
        self._order.restore(state)
        return (state["input"],)

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows

    def _input_rows(self, rows: int) -> int:
        node: Shard = self.node
        first = (node.index - self._seen) % node.num_shards
        return first + (rows - 1) * node.num_shards + 1 if rows else 0


@dataclass
class EnumerateStage(OneToOne):
    """Running form of ``Enumerate``."""

    def __post_init__(self) -> None:
        node: Enumerate = self.node
        self._order = EnumerateOrder(node.start)
        self._first = node.start

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        async for chunk in inlets[0]:
            await outlet.send(await self.hop(_numbered, self._order, chunk))

    def at(self, rows: int, book: BookWriter) -> State:
        return {"op": "enumerate", "next": self._first + rows, "input": self.inputs[0].at(rows, book)}

    def resume(self, state: State) -> Sequence[State]:
        state = taken_up(state, "enumerate")
        self._first = self._order.next = state["next"]
        return (state["input"],)

    async def recall(self, lineage: Lineage) -> Chunk:
        plain = Lineage(without_last_pair(lineage.ids), lineage.made_of)
        return _with_numbers(await self.context.recall(self.node.input, plain), last_ordinals(lineage.ids))


def _numbered(order: EnumerateOrder, chunk: Chunk) -> Chunk:
    return _with_numbers(chunk, order.push(len(chunk)))


def _with_numbers(chunk: Chunk, numbers: NDArray[np.int64]) -> Chunk:
    ids = with_pair(chunk.ids, NUMBERED, numbers)
    if isinstance(chunk, Columns):
        structure = Structure("tuple", (), (LEAF, chunk.structure))
        return Columns(structure, (numbers, *chunk.leaves), ids, chunk.lease, chunk.made_of)
    return Items(list(zip(numbers.tolist(), chunk.values, strict=True)), ids, chunk.lease, chunk.made_of)
