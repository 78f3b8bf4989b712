"""Make ranks that read different files emit the same number of elements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.context import hop
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data.errors import CardinalityError, RankError
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.plan.asserted import PadToCardinality
from aiostream_data.plan.rank_nodes import Agree, EqualRows
from aiostream_data.ranks.padding import OF_RANKS, as_padding, marked, padding_of, with_marks, without_padding
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Items, gather
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.transforms.equal_rows import REPEATED, FillOrder, check_had, window_of

FILL_ROWS = 256
"""Maximum number of filler rows in a chunk."""


@dataclass
class FilledUp(Stage):
    """Base class of stages that emit their input's rows.

    If the input has too few rows, the stage repeats some of the last rows as fillers.
    """

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        self._order = FillOrder(self._window())
        self._given_before = 0
        self._last: Chunk | None = None
        self._charge = self.context.services.budget.charge(0, "ranks")

    @property
    def _adder(self) -> int:
        """Number of this operator in the marks of padding rows."""
        return OF_RANKS

    def _window(self) -> int:
        raise NotImplementedError

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        try:
            await self._give(inlets[0], outlet)
        finally:
            self._last = None
            self._charge.end()

    async def _give(self, inlet: Inlet, outlet: Outlet) -> None:
        raise NotImplementedError

    async def _rows(self, inlet: Inlet) -> AsyncIterator[Chunk]:
        """Yield the input rows that the saved run had not emitted.

        Keep the last rows of the input as fillers.
        """
        async for chunk in inlet:
            if self._order.window:
                self._last = await self.hop(_last_rows, self._last, chunk, self._order.window)
                self._charge.resize(self._last.nbytes)
            new = self._order.push(len(chunk))
            if new.start < new.stop:
                yield chunk.slice(new.start, new.stop)

    async def _fill_up(self, count: int, outlet: Outlet) -> None:
        if self._last is None:
            raise RankError(
                "cannot fill up this rank: its files have no rows to repeat. Use files with rows for every rank, or "
                "policy='row'."
            )
        rows = self._order.fill(count, len(self._last))
        fillers = _copied([self._last], np.zeros(count, np.int32), rows)
        await outlet.send(
            self._finished(as_padding(fillers, adder=self._adder) if self.node.tail == "pad" else fillers)
        )

    def _finished(self, rows: Chunk) -> Chunk:
        """Return rows in the form in which the stage emits them."""
        return rows

    def at(self, rows: int, book: BookWriter) -> State:
        before = self.inputs[0].at(self._order.input_rows(rows), book)
        return {"op": self.kind, "given": self._given_before + rows, **self._order.state(rows), "input": before}

    def forget(self, rows: int) -> None:
        self.inputs[0].forget(self._order.input_rows(rows))

    def resume(self, state: State) -> Sequence[State]:
        state = taken_up(state, self.kind)
        self._given_before = state["given"]
        self._order.restore(state)
        return (state["input"],)

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "given", "again", "filled", "input")
        most = place.node.rows if isinstance(place.node, (EqualRows, PadToCardinality)) else MAX_COUNT
        given = place.counted(fields["given"], most=most)
        fields["filled"].integer(0, given)
        fields["again"].integer(0, min(REPEATED, given))
        yield place.of_input(fields["input"], rows=place.rows.any)

    async def recall(self, lineage: Lineage) -> Chunk:
        plain = Lineage(without_padding(lineage.ids, self._adder), lineage.made_of)
        is_padding = padding_of(lineage.ids, self._adder)
        return marked(await self.context.recall(self.node.input, plain), is_padding, self._adder)


@dataclass
class EqualRowsStage(FilledUp):
    """Stage of an ``EqualRows`` plan node: emits a fixed number of rows.

    The stage stops its input after the last required row.
    """

    kind: ClassVar[str] = "equal_rows"

    def _window(self) -> int:
        node: EqualRows = self.node
        return window_of(node.own, node.rows, node.tail)

    async def _give(self, inlet: Inlet, outlet: Outlet) -> None:
        node: EqualRows = self.node
        given = self._given_before
        async for chunk in self._rows(inlet):
            part = chunk.slice(0, min(len(chunk), node.rows - given))
            given += len(part)
            await outlet.send(self._finished(part))
            if given == node.rows:
                return
        self._check_had(given - self._order.filled)
        while given < node.rows:
            count = min(node.rows - given, FILL_ROWS)
            given += count
            await self._fill_up(count, outlet)

    def _check_had(self, given: int) -> None:
        """Raise an error if the input had fewer rows than the plan states."""
        node: EqualRows = self.node
        check_had(given, node.own, node.rows)


@dataclass
class PadToCardinalityStage(EqualRowsStage):
    """Stage of a ``PadToCardinality`` plan node: emits a fixed number of rows, each with a flag."""

    kind: ClassVar[str] = "pad_to_cardinality"

    @property
    def _adder(self) -> int:
        return self.context.keys[self.node] + 1  # rows may have the padding of other operators too

    def _check_had(self, given: int) -> None:
        node: PadToCardinality = self.node
        if given < node.own:
            raise CardinalityError(
                f"pad_to_cardinality() expects {node.own} elements, the cardinality of its input, but its input has "
                f"{given}. Correct the operators before it: a repeat() ends early if one of its repetitions is empty."
            )

    def _finished(self, rows: Chunk) -> Chunk:
        return with_marks(rows, "pad_to_cardinality()")

    async def recall(self, lineage: Lineage) -> Chunk:
        return self._finished(await super().recall(lineage))


@dataclass
class AgreeStage(FilledUp):
    """Stage of an ``Agree`` plan node: lets all ranks agree on when to end.

    The stage calls the user's consensus function for each element, on a dedicated thread.
    """

    kind: ClassVar[str] = "agree"

    def _window(self) -> int:
        node: Agree = self.node
        return 0 if node.tail == "drop" else 1

    async def _give(self, inlet: Inlet, outlet: Outlet) -> None:
        node: Agree = self.node
        await (self._while_all_have(inlet, outlet) if node.tail == "drop" else self._while_any_has(inlet, outlet))

    async def _while_all_have(self, inlet: Inlet, outlet: Outlet) -> None:
        async for chunk in self._rows(inlet):
            for row in range(len(chunk)):
                if not await self._all_say(True):
                    return
                await outlet.send(chunk.slice(row, row + 1))
        await self._all_say(False)

    async def _while_any_has(self, inlet: Inlet, outlet: Outlet) -> None:
        async for chunk in self._rows(inlet):
            for row in range(len(chunk)):
                await self._all_say(False)
                await outlet.send(chunk.slice(row, row + 1))
        while not await self._all_say(True):
            await self._fill_up(1, outlet)

    async def _all_say(self, mine: bool) -> bool:
        node: Agree = self.node
        # A separate thread: waiting for other ranks must not block a pool thread.
        thread = self.context.services.workers.at(self.context.place(node), lambda: ThreadExecutor(1, "asd-agree"))
        return bool(await hop(self.counters, thread.submit(node.consensus, mine)))


def _last_rows(last: Chunk | None, chunk: Chunk, window: int) -> Chunk:
    """Return a copy of the last ``window`` rows of ``last`` followed by ``chunk``."""
    chunks = [chunk] if last is None or len(chunk) >= window else [last, chunk]
    sizes = np.array([len(part) for part in chunks])
    which = np.repeat(np.arange(len(chunks), dtype=np.int32), sizes)[-window:]
    rows = np.concatenate([np.arange(size) for size in sizes])[-window:]
    return _copied(chunks, which, rows)


def _copied(chunks: Sequence[Chunk], which: NDArray[np.int32], rows: NDArray[np.int64]) -> Chunk:
    """Gather rows like ``gather()``, but copy Python objects deeply, because the consumer owns emitted objects."""
    picked = gather(chunks, which, rows)
    if isinstance(picked, Items):
        return Items([deepcopy(value) for value in picked.values], picked.ids, None, picked.made_of)
    return picked
