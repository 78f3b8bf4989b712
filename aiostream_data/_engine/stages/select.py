"""Select rows by number (take, skip, shard) and number rows (enumerate)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.stage import OneToOne, Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data.plan.operators import Enumerate, Shard, SkipFirst, Take
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import NUMBERED
from aiostream_data.rows.structure import LEAF, Structure
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.transforms.selection import EnumerateOrder, ShardOrder, SkipOrder, TakeOrder


@dataclass
class TakeStage(Stage):
    """Stage of a ``Take`` plan node: emits the first rows. The stage stops its input after the last required row."""

    kind: ClassVar[str] = "take"

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

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "taken", "input")
        most = MAX_COUNT if place.node is None or place.node.count < 0 else place.node.count
        taken = place.counted(fields["taken"], most=most)
        yield place.of_input(fields["input"], rows=Rows(taken, taken))


@dataclass
class SkipStage(Stage):
    """Stage of a ``SkipFirst`` plan node: skips the first rows. To skip all rows, the stage reads nothing."""

    kind: ClassVar[str] = "skip"

    def __post_init__(self) -> None:
        node: SkipFirst = self.node
        self._order = SkipOrder(node.count)
        self._skipped = 0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        if self.node.count < 0:
            return
        async for chunk in inlets[0]:
            part = self._order.push(len(chunk))
            rest = chunk.slice(part.start, part.stop)
            outlet.drop(len(chunk) - len(rest))
            await outlet.send(rest)
            del chunk, rest  # free the rows during the wait for the next

    def at(self, rows: int, book: BookWriter) -> State:
        if rows == 0:  # rows not skipped yet must not be counted twice
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

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "skipped", "input")
        skipped = fields["skipped"].integer(0, MAX_COUNT if place.node is None else max(0, place.node.count))
        least, most = place.rows
        yield place.of_input(fields["input"], rows=Rows(least + skipped, min(MAX_COUNT, most + skipped)))

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows


@dataclass
class ShardStage(Stage):
    """Stage of a ``Shard`` plan node: emits every n-th row."""

    kind: ClassVar[str] = "shard"

    def __post_init__(self) -> None:
        node: Shard = self.node
        self._order = ShardOrder(node.num_shards, node.index)
        self._seen = 0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        async for chunk in inlets[0]:
            mine = await self.hop(chunk.take, self._order.push(len(chunk)))
            outlet.drop(len(chunk) - len(mine))
            await outlet.send(mine)
            del chunk, mine

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

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "seen", "input")
        seen = fields["seen"].integer()
        if place.node is not None and place.scope.exact:
            given = len(range(place.node.index, seen, place.node.num_shards))
            if not place.rows.includes(given) or (seen and (seen - 1 - place.node.index) % place.node.num_shards):
                raise fields["seen"].refused("must be the number of rows up to a row of this shard")
        yield place.of_input(fields["input"], rows=Rows(seen, seen))

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows

    def _input_rows(self, rows: int) -> int:
        node: Shard = self.node
        first = (node.index - self._seen) % node.num_shards
        return first + (rows - 1) * node.num_shards + 1 if rows else 0


@dataclass
class EnumerateStage(OneToOne):
    """Stage of an ``Enumerate`` plan node: adds a number to every row."""

    kind: ClassVar[str] = "enumerate"

    def __post_init__(self) -> None:
        node: Enumerate = self.node
        self._order = EnumerateOrder(node.start)
        self._first = node.start

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        async for chunk in inlets[0]:
            await outlet.send(await self.hop(_numbered, self._order, chunk))
            del chunk

    def at(self, rows: int, book: BookWriter) -> State:
        return {"op": "enumerate", "next": self._first + rows, "input": self.inputs[0].at(rows, book)}

    def resume(self, state: State) -> Sequence[State]:
        state = taken_up(state, "enumerate")
        self._first = self._order.next = state["next"]
        return (state["input"],)

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "next", "input")
        start = 0 if place.node is None or not place.scope.exact else place.node.start
        least, most = place.rows
        given = fields["next"].integer(start + least, start + most) - start
        yield place.of_input(fields["input"], rows=Rows(given, given))

    async def recall(self, lineage: Lineage) -> Chunk:
        plain = Lineage(lineage.ids.without_pair(), lineage.made_of)
        return _with_numbers(await self.context.recall(self.node.input, plain), lineage.ids.last_ordinals())


def _numbered(order: EnumerateOrder, chunk: Chunk) -> Chunk:
    return _with_numbers(chunk, order.push(len(chunk)))


def _with_numbers(chunk: Chunk, numbers: NDArray[np.int64]) -> Chunk:
    ids = chunk.ids.with_pair(NUMBERED, numbers)
    if isinstance(chunk, Columns):
        structure = Structure("tuple", (), (LEAF, chunk.structure))
        return Columns(structure, (numbers, *chunk.leaves), ids, chunk.lease, chunk.made_of)
    return Items(list(zip(numbers.tolist(), chunk.values, strict=True)), ids, chunk.lease, chunk.made_of)
