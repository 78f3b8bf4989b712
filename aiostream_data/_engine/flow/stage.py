"""Base classes of stages. Stage: one coroutine that moves chunks from its inlets (inputs) to its outlet (output)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.context import RunContext, hop
from aiostream_data._engine.flow.epochs_apart import EpochsApart
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.emission_log import EmissionLog
from aiostream_data._engine.resume.kept_log import KeptLog
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Position, State, taken_up
from aiostream_data.failing.policies import handling_of
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Call, Filter, Map
from aiostream_data.rows.lineage import Lineage, concat_lineages
from aiostream_data.rows.records import Chunk
from aiostream_data.state_fields import MAX_COUNT, Part


@dataclass
class Stage:
    """Stage: runtime object of one plan node.

    The supervisor closes or aborts the stage's inlets and outlet when ``run`` returns.

    Attributes:
        node: The plan node.
        context: Context of the run that the stage belongs to.
        counters: Counters of the stage, e.g. its busy time.
        inputs: Positions of the stages that send to the inlets, in order; see
            :mod:`aiostream_data._engine.resume.position`.
    """

    refills: ClassVar[bool] = False
    """True if ``run`` itself calls ``outlet.refill()``.

    Otherwise, the supervisor calls ``outlet.refill()`` before ``run``.
    """

    node: Any
    context: RunContext
    counters: StageCounters
    inputs: Sequence[Position] = ()

    @property
    def inputs_side_by_side(self) -> int:
        """Number of inputs, counted from the first one, whose rows the stage mixes; at least 1."""
        return 1

    @property
    def counts_losses(self) -> bool:
        """True if the stage counts the losses of its sources at its rows, so that the next epoch must begin later."""
        return False

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        """Move chunks from the inlets to the outlet until the stream ends.

        Raises:
            ReceiverClosed: The receiver of the outlet was closed; the supervisor then ends the stage without an error.
        """
        raise NotImplementedError

    # -- position; the defaults are for a stage that emits one row per input row, in order

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state from which the stream can resume after its first ``rows`` rows. Safe from any thread."""
        return self.inputs[0].at(rows, book)

    def forget(self, rows: int) -> None:
        """Discard the history before row ``rows``, which no state will need. Safe from any thread."""
        for before in self.inputs:
            before.forget(rows)

    def resume(self, state: State) -> Sequence[State]:
        """Restore a saved state before ``run`` is called. Return the saved states of the inputs, in order."""
        return [state] * len(self.node.inputs)

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        """Validate the part of a state that :meth:`at` wrote, without running a stage.

        Yield a :class:`Place` for each input, so that the caller can validate the inputs.

        The default implementation is for a stage that saves only the state of its input.

        Raises:
            DamagedStateError: A value in the state is missing, of the wrong type, or out of range.
        """
        yield place.of_input(place.part, rows=place.rows)

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute rows that this stage emitted, without running the stage."""
        return await self.context.recall(self.node.inputs[0], lineage)

    def rows_accounted(self, outlet: Outlet) -> int | None:
        """Return the number of input rows used for the rows sent so far, or None if the number cannot be computed."""
        return None

    async def hop(self, function: Any, *args: Any) -> Any:
        """Run ``function`` on the shared pool of threads and count the cost of the call.

        Return the value of the function or raise its error.
        """
        return await hop(self.counters, self.context.services.pool.submit(function, *args))


@dataclass
class OneToOne(Stage):
    """Stage that emits exactly one row per input row."""

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows


@dataclass
class NumberedRows(Stage):
    """Source that numbers its rows from 0 in every epoch.

    The saved state of the source is the number of the next row.
    """

    kind: ClassVar[str] = "rows"

    _first: int = 0

    def at(self, rows: int, book: BookWriter) -> State:
        return {"op": "rows", "next": self._first + rows}

    def forget(self, rows: int) -> None:
        pass

    def resume(self, state: State) -> Sequence[State]:
        self._first = taken_up(state, "rows")["next"]
        return ()

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        count = None if place.node is None else cls.count(place.node)
        place.counted(place.fields("rows", "next")["next"], most=MAX_COUNT if count is None else count)
        yield from ()

    @classmethod
    def count(cls, node: Any) -> int | None:
        """Return the number of rows of the source, or None if the number is unknown before reading."""
        return None


@dataclass
class CallStage(Stage):
    """Stage that calls a user function for each row and emits at most one row per input row.

    The saved state of an ordered stage is the state of the stage's input. If an ordered stage drops rows, ``kept`` maps
    the numbers of output rows to the numbers of input rows. The saved state of an unordered stage contains the input
    position and the rows that were received but not emitted. After resuming, the stage processes these unfinished rows
    first.

    Attributes:
        log: Log of rows received and emitted. None if this run and the run that saved the state are both ordered.
        kept: Log of the rows that were not dropped, written by the subclass. None if no rows are dropped or ``log`` is
            set.
    """

    kind: ClassVar[str] = "unordered"

    def __post_init__(self) -> None:
        self.log = None if self.node.ordered else EmissionLog()
        self.kept = KeptLog() if self.log is None and any(map(leaves_rows_out, self.nodes)) else None
        self._held: Lineage | None = None
        self._held_rows = 0
        self._apart: EpochsApart | None = None

    @property
    def nodes(self) -> tuple[Call, ...]:
        """Plan nodes that run in this stage, in stream order."""
        return (self.node,)

    @property
    def source_node(self) -> Node:
        """Plan node whose rows this stage receives."""
        return self.nodes[0].input

    def held_then(self, inlet: Inlet) -> AsyncIterator[Chunk]:
        """Return an iterator over the unfinished rows that the saved state names, and then the rows of the inlet.

        If results of several epochs must not be mixed, rows of an epoch follow all results of earlier ones.
        """
        rows = self._held_and_received(inlet)
        if self.node.ordered or self.log is None or not any(map(_keeps_epochs, self.nodes)):
            return rows
        self._apart = EpochsApart(self.log)
        return self._apart.chunks(rows)

    async def _held_and_received(self, inlet: Inlet) -> AsyncIterator[Chunk]:
        if self._held is not None and len(self._held):
            inlet.held += len(self._held)
            yield await self.context.recall_held(self.source_node, self._held)
        async for chunk in inlet:
            yield chunk
            del chunk

    def give_out(self, numbers: NDArray[np.int64], kept: NDArray[np.int64] | None) -> None:
        """Log finished rows, in the order in which the stage emits them. See :meth:`.EmissionLog.give_out`."""
        if self.log is not None:
            self.log.give_out(numbers, kept)
        if self._apart is not None:
            self._apart.emitted()

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows  # dropped rows are counted separately

    def at(self, rows: int, book: BookWriter) -> State:
        if self.kept is not None:
            return self.inputs[0].at(self.kept.input_rows(rows), book)
        if self.log is None:
            return self.inputs[0].at(rows, book)
        taken, held = self.log.place(rows)
        if self._held_rows and taken < self._held_rows:  # rows held in the resumed state are processed first
            held = concat_lineages([held, self._rest_of_held(taken)])
        before = self.inputs[0].at(max(0, taken - self._held_rows), book)
        return {"op": "unordered", "of": self._keys[0], "held": book.rows(held), "input": before}

    def forget(self, rows: int) -> None:
        if self.kept is not None:
            self.inputs[0].forget(self.kept.input_rows(rows))
            self.kept.forget(rows)
            return
        if self.log is None:
            self.inputs[0].forget(rows)
            return
        self.log.forget(rows)
        self.inputs[0].forget(max(0, self.log.place(rows)[0] - self._held_rows))

    def resume(self, state: State) -> Sequence[State]:
        held: list[Lineage] = []
        while self._is_mine(state):  # several states if the nodes of this stage ran in separate stages before
            held.append(self.context.services.book.rows(state["held"]))
            state = state["input"]
        if held:
            self._held = concat_lineages(held)
            self._held_rows = len(self._held)
            if self.log is None:  # held rows are processed first, even if the stage is ordered now
                self.log, self.kept = EmissionLog(), None
        return (state,)

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        part, rows = place.part, place.rows.or_some_more
        if place.node is None:
            yield place.of_input(_check_unordered(place))
            return
        nodes = [*place.fused, place.node]
        keys = [place.scope.keys[node] for node in nodes]
        if any(map(leaves_rows_out, nodes)):
            rows = rows.or_more
        while isinstance(part.value, dict) and part.value.get("op") == cls.kind and part.value.get("of") in keys:
            part, rows = _check_unordered(replace(place, part=part)), rows.any
        yield place.of_node(part, nodes[0].input, rows)

    @property
    def _keys(self) -> list[int]:
        return [self.context.keys[node] for node in self.nodes]

    def _is_mine(self, state: State) -> TypeGuard[dict[str, Any]]:
        """Return True if ``state`` was saved by an unordered stage that ran one of this stage's nodes."""
        is_unordered = isinstance(state, dict) and state.get("op") == "unordered"
        return is_unordered and state.get("of", self._keys[0]) in self._keys

    def _rest_of_held(self, taken: int) -> Lineage:
        assert self._held is not None
        return self._held.take(np.arange(taken, self._held_rows))


def _keeps_epochs(node: Call) -> bool:
    return isinstance(node, Map) and node.keeps_epochs


def _check_unordered(place: Place) -> Part:
    """Validate the part of a saved state that belongs to an unordered stage.

    Return the input's part of the saved state.
    """
    fields = place.fields(CallStage.kind, "of", "held", "input")
    fields["of"].integer()
    place.held(fields["held"])
    return fields["input"]


def leaves_rows_out(node: Call) -> bool:
    """Return True if a node may drop rows."""
    return isinstance(node, Filter) or handling_of(node.on_error).kind == "skip"
