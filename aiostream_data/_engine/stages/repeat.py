"""Run several plans one after another: the epochs of ``repeat``, or the inputs of ``concatenate``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from aiostream_data._engine.flow.channel import Receiver, Sender, open_channel
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.drained import Drained
from aiostream_data._engine.flow.forwarding import forward
from aiostream_data._engine.flow.recall import in_epochs, in_groups, inputs_of
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.flow.task_errors import carrying
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import Log, Position, State, taken_up
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Concatenate, Repeat
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk
from aiostream_data.state_fields import MAX_COUNT


@dataclass
class Turn:
    """One run of a plan in a sequence of runs.

    Attributes:
        number: Index of this run, counted from the beginning of the stream.
        state: Saved state from which this run resumes; None if the run starts from the beginning.
        rows_before: Number of rows that this run had emitted when the state was saved.
        position: Position of the plan; None until this run has started.
    """

    number: int
    node: Node
    context: RunContext
    state: State = None
    rows_before: int = 0
    position: Position | None = None

    def begun(self, position: Position) -> None:
        """Set the position of the plan, which has started."""
        self.position = position

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state of the plan after this run has emitted ``rows`` rows."""
        if self.position is None:
            return self.context.services.book.carried_over(self.state, book)
        return self.position.at(rows, book)


class _Begun(NamedTuple):
    """Started run of a plan, with its task and the channel of its rows."""

    turn: Turn
    receiver: Receiver[Chunk]
    task: asyncio.Task[None]


@dataclass
class InTurns(Stage):
    """Base class of stages that run one plan after another.

    The next plan opens when the sources of the current plan have read their last row. Thus no pause occurs between
    epochs. In a large mixture, the next plan opens when the mixture asks for its first chunk.
    """

    kind: ClassVar[str]
    stop_at_empty: ClassVar[bool]

    _log: Log[Turn] = field(default_factory=Log)
    _state: State = None

    def turns(self, first: int) -> Iterator[tuple[int, Node, RunContext]]:
        """Yield (number, plan, context) of each plan run, starting with run number ``first``."""
        raise NotImplementedError

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        if self.context.is_crowded:
            await self._play_in_turn(outlet)
            return
        turns = self._turns()
        async with asyncio.TaskGroup() as group:
            current = self._begin(turns, None, outlet, group)
            while current is not None:
                turn, receiver, _ = current
                upcoming = self._begin(turns, turn.context.drained, outlet, group)
                self._log.add(outlet.rows, turn)
                rows = await forward(receiver, outlet)
                if rows + turn.rows_before == 0 and self.stop_at_empty:
                    if upcoming is not None:  # an empty run never sends, so it would not detect the closed channel
                        upcoming.receiver.close()
                        upcoming.task.cancel()
                    return
                current = upcoming

    async def _play_in_turn(self, outlet: Outlet) -> None:
        """Run one plan after another in this task, without opening a plan ahead of its turn."""
        for turn in self._turns():
            await outlet.until_wanted()
            self._log.add(outlet.rows, turn)
            rows = await turn.context.play(turn.node, turn.state, outlet, turn.begun)
            if rows + turn.rows_before == 0 and self.stop_at_empty:
                return

    def _turns(self) -> Iterator[Turn]:
        state = self._state or {"turn": 0, "rows": 0, "input": None}
        for number, node, context in self.turns(state["turn"]):
            if number == state["turn"]:
                yield Turn(number, node, context, state["input"], state["rows"])
            else:
                yield Turn(number, node, context)

    def _begin(
        self, turns: Iterator[Turn], after: Drained | None, outlet: Outlet, group: asyncio.TaskGroup
    ) -> _Begun | None:
        turn = next(turns, None)
        if turn is None:
            return None
        budget = self.context.services.budget
        sender, receiver = open_channel(1, budget.channel_nbytes)
        receiver.wanted_for(outlet.is_awaited)
        receiver.on_wait = budget.look_soon
        return _Begun(turn, receiver, group.create_task(_play(turn, after, sender)))

    # -- saved position

    def at(self, rows: int, book: BookWriter) -> State:
        found = self._log.find(rows)
        if found is None:
            return self.context.services.book.carried_over(self._state, book)
        start, turn = found
        place = turn.at(rows - start, book)
        given = turn.rows_before + rows - start
        return {"op": self.kind, "turn": turn.number, "rows": given, "input": place}

    def forget(self, rows: int) -> None:
        found = self._log.find(rows)
        if found is not None:
            start, turn = found
            if turn.position is not None:
                turn.position.forget(rows - start)
            self._log.forget(rows)

    def resume(self, state: State) -> Sequence[State]:
        self._state = taken_up(state, self.kind)
        return ()

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "turn", "rows", "input")
        turns = MAX_COUNT if place.node is None else cls.turns_of(place.node)
        turn = fields["turn"].integer(0, (MAX_COUNT if turns is None else turns) - 1)
        rows = fields["rows"].integer(place.rows.least if turn == 0 else 0, place.rows.most)
        node = None if place.node is None else cls.node_of(place.node, turn)
        played = place.of_node(fields["input"], node, Rows(rows, rows))
        yield played if place.node is None else replace(played, epoch=cls.epoch_of(place.node, place.epoch, turn))

    @classmethod
    def turns_of(cls, node: Any) -> int | None:
        """Return the number of plan runs, or None if the number is infinite."""
        raise NotImplementedError

    @classmethod
    def node_of(cls, node: Any, turn: int) -> Node:
        """Return the plan of run number ``turn``."""
        raise NotImplementedError

    @classmethod
    def epoch_of(cls, node: Any, epoch: int, turn: int) -> int:
        """Return the epoch of run number ``turn``."""
        return epoch


@dataclass
class RepeatStage(InTurns):
    """Stage of a ``Repeat`` plan node: runs its input several times. The stage never mixes rows of different epochs.

    An epoch without rows ends an infinite repetition, as in tf.data.
    """

    kind: ClassVar[str] = "repeat"
    stop_at_empty: ClassVar[bool] = True

    def turns(self, first: int) -> Iterator[tuple[int, Node, RunContext]]:
        node: Repeat = self.node
        number = first
        while node.count is None or number < node.count:
            yield number, node.input, self.context.for_epoch(self.epoch_of(node, self.context.epoch, number))
            number += 1

    @classmethod
    def turns_of(cls, node: Repeat) -> int | None:
        return node.count

    @classmethod
    def node_of(cls, node: Repeat, turn: int) -> Node:
        return node.input

    @classmethod
    def epoch_of(cls, node: Repeat, epoch: int, turn: int) -> int:
        return epoch * node.turns + turn

    async def recall(self, lineage: Lineage) -> Chunk:
        node: Repeat = self.node
        return await in_epochs(lineage, node.input, self.context)


@dataclass
class ConcatenateStage(InTurns):
    """Stage of a ``Concatenate`` plan node: runs its inputs one after another."""

    kind: ClassVar[str] = "concatenate"
    stop_at_empty: ClassVar[bool] = False

    def turns(self, first: int) -> Iterator[tuple[int, Node, RunContext]]:
        node: Concatenate = self.node
        for number, child in enumerate(node.nodes[first:], first):
            yield number, child, self.context.for_epoch(self.context.epoch)

    @classmethod
    def turns_of(cls, node: Concatenate) -> int | None:
        return len(node.nodes)

    @classmethod
    def node_of(cls, node: Concatenate, turn: int) -> Node:
        return node.nodes[turn]

    async def recall(self, lineage: Lineage) -> Chunk:
        node: Concatenate = self.node
        branches = inputs_of(lineage, node.nodes, self.context)

        async def of_branch(branch: int, rows: Lineage) -> Chunk:
            return await self.context.recall(node.nodes[branch], rows)

        return await in_groups(lineage, branches, of_branch)


async def _play(turn: Turn, after: Drained | None, sender: Sender[Chunk]) -> None:
    with sender, carrying(sender):
        if after is not None:
            await after.wait()
        async with turn.context.open(turn.node, turn.state) as receiver:
            turn.position = receiver.position
            receiver.wanted_for(lambda: sender.is_awaited)
            rows = await _pass_on(receiver, sender)
            receiver.check(rows)
            sender.declare(rows)


async def _pass_on(receiver: Receiver[Chunk], sender: Sender[Chunk]) -> int:
    """Forward all chunks, and return the total number of rows in these chunks."""
    rows = 0
    async for chunk in receiver:
        rows += len(chunk)
        await sender.send(chunk, chunk.nbytes)
        del chunk
    return rows
