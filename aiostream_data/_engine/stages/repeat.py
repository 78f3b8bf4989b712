"""Play plans one after another, each begun before the one before it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from aiostream_data._engine.channel import EndOfStream, Receiver, ReceiverClosed, Sender, open_channel
from aiostream_data._engine.context import Drained, RunContext
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.stages.base import Stage
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Concatenate, Repeat
from aiostream_data.records import Chunk

Turn = tuple[Node, RunContext]


@dataclass
class RepeatStage(Stage):
    """Running form of ``Repeat``. Epochs never mix: the next one's rows follow the last of this one's.

    An epoch without rows ends an infinite repetition, as in tf.data.
    """

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        await play_in_turn(self._epochs(), outlet)

    def _epochs(self) -> Iterator[Turn]:
        node: Repeat = self.node
        number = 0
        while node.count is None or number < node.count:
            epoch = number if node.count is None else self.context.epoch * node.count + number
            yield node.input, self.context.for_epoch(epoch)
            number += 1


@dataclass
class ConcatenateStage(Stage):
    """Running form of ``Concatenate``."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Concatenate = self.node
        turns = ((child, self.context.for_epoch(self.context.epoch)) for child in node.nodes)
        await play_in_turn(turns, outlet, stop_at_empty=False)


async def play_in_turn(turns: Iterator[Turn], outlet: Outlet, stop_at_empty: bool = True) -> None:
    """Send the rows of every plan to ``outlet``, in turn.

    A plan is opened as soon as the one before it has read its last row, while the rows still on
    their way are being consumed: no pause between epochs.
    """
    async with asyncio.TaskGroup() as group:
        current = _begin(turns, None, group)
        while current is not None:
            receiver, drained = current
            upcoming = _begin(turns, drained, group)
            rows = await _forward(receiver, outlet)
            if rows == 0 and stop_at_empty:
                if upcoming is not None:
                    upcoming[0].close()
                return
            current = upcoming


def _begin(
    turns: Iterator[Turn], after: Drained | None, group: asyncio.TaskGroup
) -> tuple[Receiver[Chunk], Drained] | None:
    turn = next(turns, None)
    if turn is None:
        return None
    node, context = turn
    sender, receiver = open_channel(1, context.services.budget.channel_nbytes)
    group.create_task(_play(node, context, after, sender))
    return receiver, context.drained


async def _play(node: Node, context: RunContext, after: Drained | None, sender: Sender[Chunk]) -> None:
    with suppress(ReceiverClosed), sender:
        if after is not None:
            await after.wait()
        async with context.open(node) as receiver:
            async for chunk in receiver:
                await sender.send(chunk, chunk.nbytes)


async def _forward(receiver: Receiver[Chunk], outlet: Outlet) -> int:
    rows = 0
    with receiver:
        while True:
            try:
                chunk = await receiver.receive()
            except EndOfStream:
                return rows
            rows += len(chunk)
            await outlet.send(chunk)
