"""Combine the rows of several inputs, either by weight or by a stream of input numbers."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.merge_loop import MergeLoop
from aiostream_data._engine.flow.recall import in_groups, inputs_of
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import Log, RememberedPosition, State, taken_up
from aiostream_data._engine.resume.weight_changes import WeightChanges
from aiostream_data._engine.sources.listed_shards import gains_rows
from aiostream_data.errors import ChoiceError, StateMismatchError
from aiostream_data.plan.base import Node
from aiostream_data.plan.mixing import Choose, Mix
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.state_fields import Part
from aiostream_data.transforms.choosing import ChooseOrder, ChooseStep
from aiostream_data.transforms.inputs_ahead import InputsAhead
from aiostream_data.transforms.interleave import MergeStep, Need, WaitingStream
from aiostream_data.transforms.mixing import MixOrder, MixStep
from aiostream_data.weights import UNIT


@dataclass
class TakesTurns(MergeLoop, Stage):
    """Base class of stages that take rows from several inputs. An order object computes the sequence of inputs.

    The log stores intermediate positions of the order object. From a logged position and a row count, the stage
    computes the state after any row.
    """

    kind: ClassVar[str]

    _log: Log[Any] = field(default_factory=Log)
    _resumed: dict[str, Any] | None = None  # saved state of the order; None at the start of the stream
    _decided: int = 0
    _unsent: NDArray[np.int64] | int = 0  # number of chosen rows of each input that were not sent
    _inlets: Sequence[Inlet] = ()

    def __post_init__(self) -> None:
        me = weakref.proxy(self)  # a cycle would keep the inputs until a garbage collection
        self._ahead = InputsAhead(len(self.node.nodes), lambda slot: me._inlets[slot].ready)

    @property
    def order(self) -> MixOrder | ChooseOrder:
        """Object that computes the sequence of inputs.

        The first access creates this object. A resumed run creates the object from the saved state.
        """
        raise NotImplementedError

    @property
    def names(self) -> Sequence[str]:
        """Names of the inputs that supply rows to the output."""
        raise NotImplementedError

    @property
    def inputs_side_by_side(self) -> int:
        return len(self.node.nodes)

    def rows_taken(self, order: dict[str, Any]) -> list[int]:
        """Return the number of rows taken from each inlet, according to a saved state of the order object."""
        raise NotImplementedError

    def decide(self, max_rows: int) -> MixStep | ChooseStep:
        """Choose the inputs of at most ``max_rows`` next rows."""
        return self.order.advance(max_rows)

    def load(self, slot: int, chunk: Chunk) -> None:
        super().load(slot, chunk)
        self.order.load(slot, len(chunk))
        self._ahead.loaded(slot)

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        self._inlets = inlets
        for name in self.names:
            self.counters.extra.setdefault(f"rows from {name}", 0)
        try:
            await self.send_all(outlet)
        finally:  # the loader keeps this stage for positions, so it must not keep rows
            self.release()
            self._inlets = ()

    def advance(self, max_rows: int) -> MergeStep:
        step = self.decide(max_rows)
        if len(step):
            self._log.add(self._decided, step.place)
            self._decided += len(step)
        for slot in self._ahead.after(len(step), self.order):
            self._inlets[slot].ask()
        return step

    def can_continue(self, waiting: WaitingStream) -> bool:
        return waiting.need is Need.NOTHING or (waiting.need is Need.ROWS and self._inlets[waiting.slot].ready)

    async def provide(self, waiting: WaitingStream) -> None:
        slot = waiting.slot
        self.current.pop(slot, None)  # release the consumed chunk while waiting
        self._inlets[slot].ask()
        chunk = await self._inlets[slot].receive()
        if chunk is None:
            self.order.ended(slot)
        else:
            self.load(slot, chunk)

    def chosen(self, step: MergeStep) -> None:
        self._unsent += np.bincount(step.which, minlength=len(self.names))

    async def sent(self, sending: Awaitable[None]) -> None:
        """Await ``sending``.

        If the outlet has counted the rows, update the row counts per input, even if ``sending`` raised an error.
        """
        before = self.counters.rows
        rows, self._unsent = self._unsent, 0
        try:
            await sending
        finally:
            if self.counters.rows > before:
                counts = np.atleast_1d(np.asarray(rows))
                for slot in np.flatnonzero(counts).tolist():
                    self.counters.extra[f"rows from {self.names[slot]}"] += int(counts[slot])

    # -- saved position

    def at(self, rows: int, book: BookWriter) -> State:
        found = self._log.find(rows)
        order = self._resumed if found is None else self.order.state_at(found[1], rows - found[0])
        inputs = zip(self._positions, self._rows_of_this_run(order), strict=True)
        return {"op": self.kind, "order": order, "inputs": [before.at(given, book) for before, given in inputs]}

    @cached_property
    def _positions(self) -> Sequence[RememberedPosition]:
        return [RememberedPosition(before) for before in self.inputs]

    def forget(self, rows: int) -> None:
        found = self._log.find(rows)
        if found is not None:
            order = self.order.state_at(found[1], 0)
            for before, given in zip(self._positions, self._rows_of_this_run(order), strict=True):
                before.forget(given)
            self._log.forget(rows)

    def _rows_of_this_run(self, order: dict[str, Any] | None) -> list[int]:
        before = [0] * len(self.inputs) if self._resumed is None else self.rows_taken(self._resumed)
        if order is None:
            return before
        return [rows - earlier for rows, earlier in zip(self.rows_taken(order), before, strict=True)]

    def resume(self, state: State) -> Sequence[State]:
        state = taken_up(state, self.kind)
        nodes, own = len(self.node.nodes), self.own_inputs
        states: list[State] = list(state["inputs"])
        new = nodes - (len(states) - own)
        if new < 0:
            raise fewer_inputs(nodes - new, nodes)
        self._resumed = None if state["order"] is None else self._revived(self.with_inputs(state["order"], new))
        at = len(states) - own
        return [*states[:at], *[None] * new, *states[at:]]

    def _revived(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the order object's saved state.

        An exhausted input that gained new shards is not marked as exhausted in the result.
        """
        nodes = self.node.nodes
        over = [number for number in order[self.exhausted] if not gains_rows(self.context, nodes[number])]
        return {**order, self.exhausted: over}

    exhausted: ClassVar[str]
    """Key under which the order object's saved state stores the list of exhausted inputs."""

    own_inputs: ClassVar[int] = 0
    """Number of additional inputs that supply no rows (such as choices).

    These additional inputs follow the inputs that supply rows.
    """

    def with_inputs(self, order: dict[str, Any], new: int) -> dict[str, Any]:
        """Return the order object's saved state, extended by ``new`` inputs.

        Each new input starts at its beginning.
        """
        return {**order, "given": [*order["given"], *[0] * new]}

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "order", "inputs")
        nodes = None if place.node is None else len(place.node.nodes)
        inputs = fields["inputs"].items(1 + cls.own_inputs)
        count = len(inputs) - cls.own_inputs
        if nodes is not None and count > nodes and not place.scope.exact:
            raise fewer_inputs(count, nodes)
        if nodes is not None and count > nodes:  # fewer are allowed: the mixture may have gained inputs
            raise fields["inputs"].refused(f"must be a list of {nodes + cls.own_inputs} entries at most")
        if fields["order"].value is not None:
            given = cls.order_schema(place, fields["order"], count)
        elif place.rows.least:
            raise fields["order"].refused("must be the position of the order")
        else:
            given = [0] * len(inputs)
        for number, (part, rows) in enumerate(zip(inputs, given, strict=True)):
            behind = 0 if nodes is None or number < count else nodes - count
            yield place.of_input(part, number + behind, Rows(rows, rows))

    @classmethod
    def order_schema(cls, place: Place, part: Part, inputs: int) -> list[int]:
        """Validate the saved state of the order object. Return the number of rows taken from each inlet."""
        raise NotImplementedError

    async def recall(self, lineage: Lineage) -> Chunk:
        nodes: Sequence[Node] = self.node.nodes
        branches = inputs_of(lineage, nodes, self.context)

        async def of_branch(branch: int, rows: Lineage) -> Chunk:
            return await self.context.recall(nodes[branch], rows)

        return await in_groups(lineage, branches, of_branch)


@dataclass
class MixStage(TakesTurns):
    """Stage of a ``Mix`` plan node: mixes inputs by weight."""

    kind: ClassVar[str] = "mix"
    exhausted: ClassVar[str] = "dropped"

    @cached_property
    def order(self) -> MixOrder:
        node: Mix = self.node
        key = self.context.key(node, node.seed, "mix", self.context.epoch) if node.random else None
        order = MixOrder(node.schedule, node.stop, key)
        if self._resumed is not None:
            order.restore(self._resumed)
        return order

    @property
    def names(self) -> Sequence[str]:
        node: Mix = self.node
        return node.schedule.names

    @cached_property
    def _changes(self) -> WeightChanges:
        """Weight changes made during the run. Weights of mixtures in inner datasets cannot change."""
        return self.context.services.features.of(WeightChanges) if self.context.path == 0 else WeightChanges()

    @property
    def _run(self) -> tuple[int, int]:
        return self.context.keys[self.node], self.context.epoch

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        self._changes.begin(self._run, self.order)
        try:
            await super().run(inlets, outlet)
        finally:
            self._changes.end(self._run)

    def rows_taken(self, order: dict[str, Any]) -> list[int]:
        given: list[int] = order["given"]
        return given

    def with_inputs(self, order: dict[str, Any], new: int) -> dict[str, Any]:
        return {**super().with_inputs(order, new), "lags": [*order["lags"], *[0] * new]}

    @classmethod
    def order_schema(cls, place: Place, part: Part, inputs: int) -> list[int]:
        fields = part.fields("row", "given", "dropped", "lags", "unit")
        row = place.counted(fields["row"])
        given = [rows.integer(0, row) for rows in fields["given"].items(inputs, inputs)]
        if sum(given) != row:
            raise fields["given"].refused(f"must have the sum {row}")
        _distinct_inputs(fields["dropped"], inputs)
        unit = fields["unit"].integer(1, UNIT)
        lags = [lag.integer(-MAX_LAG, MAX_LAG) for lag in fields["lags"].items(inputs, inputs)]
        if sum(lags) or any(abs(lag) > unit * (row + 1) for lag in lags):
            raise fields["lags"].refused(
                f"must have the sum 0, and values from {-unit * (row + 1)} to {unit * (row + 1)}"
            )
        return given

    def decide(self, max_rows: int) -> MixStep:
        with self._changes.lock:
            return self.order.advance(max_rows)

    def forget(self, rows: int) -> None:
        found = self._log.find(rows)
        if found is not None:
            start, place = found
            self._changes.forget(self._run, place.row + rows - start)
        super().forget(rows)


@dataclass
class ChooseStage(TakesTurns):
    """Stage of a ``Choose`` plan node: takes rows from the chosen inputs.

    The last inlet receives the stream of choices.
    """

    kind: ClassVar[str] = "choose"
    exhausted: ClassVar[str] = "dead"

    @cached_property
    def order(self) -> ChooseOrder:
        node: Choose = self.node
        order = ChooseOrder(len(node.nodes), node.stop)
        if self._resumed is not None:
            order.restore(self._resumed)
        return order

    @property
    def names(self) -> Sequence[str]:
        node: Choose = self.node
        return node.names

    own_inputs: ClassVar[int] = 1

    def rows_taken(self, order: dict[str, Any]) -> list[int]:
        return [*order["given"], order["spent"]]

    @classmethod
    def order_schema(cls, place: Place, part: Part, inputs: int) -> list[int]:
        fields = part.fields("given", "spent", "dead")
        given = [rows.integer(0, place.rows.most) for rows in fields["given"].items(inputs, inputs)]
        if not place.rows.includes(sum(given)):
            raise fields["given"].refused(f"must have a sum from {place.rows.least} to {place.rows.most}")
        _distinct_inputs(fields["dead"], inputs)
        return [*given, fields["spent"].integer(sum(given))]

    async def provide(self, waiting: WaitingStream) -> None:
        if waiting.slot == self.order.inputs and self.order.wrong is not None:
            raise self.order.wrong
        await super().provide(waiting)

    def load(self, slot: int, chunk: Chunk) -> None:
        if slot == self.order.inputs:
            self.order.choose(_numbers(chunk))
        else:
            super().load(slot, chunk)


MAX_LAG: Final = 1 << 60
"""Maximum lag of an input, in share units: the rows due by weight minus the emitted rows."""


def fewer_inputs(saved: int, now: int) -> StateMismatchError:
    """Build the error for a mixture that now has fewer inputs than in the saved state."""
    return StateMismatchError(
        [f"the saved mixture has {saved} inputs, this one has {now}"],
        "Add the missing inputs again. Give them the weight 0 if no more of their rows are wanted.",
    )


def _distinct_inputs(part: Part, inputs: int) -> None:
    numbers = [number.integer(0, inputs - 1) for number in part.items(most=inputs)]
    if len(set(numbers)) < len(numbers):
        raise part.refused("must not contain an input twice")


def _numbers(chunk: Chunk) -> NDArray[np.int64]:
    found = np.asarray(chunk.leaves[0] if isinstance(chunk, Columns) else chunk.elements())
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ChoiceError(f"choices must be integers, got {found.dtype} of shape {found.shape[1:]}")
    return found.astype(np.int64)
