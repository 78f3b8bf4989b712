"""Run the data sets that a user function makes of the elements, several at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from aiostream_data._engine.channel import Receiver, ReceiverClosed, Sender, open_channel
from aiostream_data._engine.context import Drained, RunContext
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.memory_rows import chunks_of
from aiostream_data._engine.merge import merge
from aiostream_data._engine.origins import Namespace
from aiostream_data._engine.sizes import chunk_nbytes
from aiostream_data._engine.stages.base import Stage
from aiostream_data._engine.user_code import UserFunction, summary
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Interleave, function_name
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.sources import PythonIterable, Range, Tensors, TensorSlices, is_one_shot
from aiostream_data.records import Chunk
from aiostream_data.transforms.interleave import InterleaveOrder
from aiostream_data.transforms.randomness import key_of

CALLS_PER_HOP = 64
"""Most elements the function is called for in one hop."""

SMALL_ROWS = 8192
"""Inner data sets in memory of at most this many rows need no run of their own."""


@dataclass
class InterleaveStage(Stage):
    """Running form of ``Interleave`` (and ``flat_map``, its case of one slot)."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Interleave = self.node
        self.counters.waits_for = "user"
        order = InterleaveOrder(node.cycle_length, node.block_length, node.ordered)
        async with asyncio.TaskGroup() as group:
            await merge(_InnerStreams(self, inlets[0], group), order, outlet)


@dataclass
class _InnerStreams:
    """Calls the user's function for one element after another and opens what it returns."""

    stage: InterleaveStage
    inlet: Inlet
    group: asyncio.TaskGroup
    _made: deque[Node] = field(default_factory=deque)
    _opened: deque[Receiver[Chunk]] = field(default_factory=deque)
    _chunk: Chunk | None = None
    _row: int = 0
    _count: int = 0
    _given: int = 0
    _at_end: bool = False

    async def next(self) -> Receiver[Chunk] | None:
        await self._open_ahead()
        if not self._opened:
            return None
        self._given += 1
        return self._opened.popleft()

    def ended(self) -> None:
        self._given -= 1

    async def _open_ahead(self) -> None:
        node: Interleave = self.stage.node
        while self._given + len(self._opened) <= node.cycle_length:
            if not self._made and not await self._make_more():
                return
            self._opened.append(self._open(self._made.popleft()))

    async def _make_more(self) -> bool:
        """Call the function for the next few elements; False when there are none."""
        node: Interleave = self.stage.node
        if self._chunk is None or self._row == len(self._chunk):
            self._chunk = None if self._at_end else await self.inlet.receive()
            self._row = 0
            if self._chunk is None:
                self._at_end = True
                return False
        stop = min(self._row + min(CALLS_PER_HOP, node.cycle_length + 1), len(self._chunk))
        part = self._chunk.slice(self._row, stop)
        self._row = stop
        user = UserFunction(node.function, self.stage.context.services.origins.describe)
        results = await self.stage.hop(user.results, part)
        self._made += [_as_node(result, node) for result in results]
        return True

    def _open(self, inner: Node) -> Receiver[Chunk]:
        context = self._context_of(inner)
        sender, receiver = open_channel(2, context.services.budget.channel_nbytes)
        receiver.counters = self.stage.counters
        if _is_small(inner):
            namespace = context.namespace(inner, lambda _: inner.label)
            _fill(sender, inner, namespace)
        else:
            self.group.create_task(_forward(context, inner, sender), name=f"inner {inner.label}")
        return receiver

    def _context_of(self, inner: Node) -> RunContext:
        outer, node = self.stage.context, self.stage.node
        number, self._count = self._count, self._count + 1
        return replace(
            outer,
            path=int(key_of(outer.path, outer.numbers[node], number)) >> 1,
            numbers={part: index for index, part in enumerate(walk(inner))},
            drained=Drained(),
            prefix=f"{outer.prefix}{outer.numbers[node]}/",
        )


def _as_node(result: Any, node: Interleave) -> Node:
    plan = getattr(result, "plan", None)
    if isinstance(plan, Node):
        return rewrite(plan)
    if isinstance(result, Iterable) and not isinstance(result, (str, bytes, dict)):
        return PythonIterable(iterable=result, one_shot=is_one_shot(result))
    raise PlanError(
        f"the function of {node.label}() must return a Dataset or an iterable, "
        f"but {function_name(node.function)} returned {summary(result)}"
    )


def _is_small(node: Node) -> bool:
    if isinstance(node, PythonIterable):
        return isinstance(node.iterable, (list, tuple)) and len(node.iterable) <= SMALL_ROWS
    if isinstance(node, TensorSlices):
        return node.times == 1 and node.rows <= SMALL_ROWS
    if isinstance(node, Tensors):
        return node.times is not None and node.times <= SMALL_ROWS
    return isinstance(node, Range) and len(node.numbers) <= SMALL_ROWS


def _fill(sender: Sender[Chunk], node: Node, namespace: Namespace) -> None:
    with sender:
        for chunk in chunks_of(node, namespace):
            sender.put(chunk, chunk_nbytes(chunk))


async def _forward(context: RunContext, node: Node, sender: Sender[Chunk]) -> None:
    with suppress(ReceiverClosed), sender:
        async with context.open(node) as receiver:
            async for chunk in receiver:
                await sender.send(chunk, chunk_nbytes(chunk))
