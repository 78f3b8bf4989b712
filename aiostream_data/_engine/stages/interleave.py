"""Run inner datasets, several at a time. A user function creates one inner dataset from each element."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from aiostream_data._engine.calls.user_code import CallResults, UserFunction, call_rows
from aiostream_data._engine.failures.carried_error import CarriedError, PartlyDone, as_raisable
from aiostream_data._engine.failures.element_summary import summary
from aiostream_data._engine.flow.channel import ReceiverClosed, Sender, open_channel
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.drained import Drained
from aiostream_data._engine.flow.merge import Merge, Stream
from aiostream_data._engine.flow.recall import in_order
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.flow.task_errors import carrying
from aiostream_data._engine.memory.budget import READ_AHEAD, Budget
from aiostream_data._engine.resume.lineage_reader import Book
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.merge_log import MergeLog, check_merge
from aiostream_data._engine.resume.origins import Namespace, local, source_of
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Position, State, taken_up
from aiostream_data._engine.resume.row_keys import expression
from aiostream_data._engine.sources.listed_shards import gains_rows
from aiostream_data._engine.sources.memory_rows import chunks_of, rows_of
from aiostream_data._engine.sources.shard_damage import damage_of
from aiostream_data.errors import PlanError, ShardGoneError, StateMismatchError
from aiostream_data.failing.policies import Handling, handling_of
from aiostream_data.plan.base import Node, keys_of, walk
from aiostream_data.plan.batched import gives_batches
from aiostream_data.plan.operators import Interleave
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.sources import PythonIterable, Range, ReadFiles, Tensors, TensorSlices
from aiostream_data.plan.written import function_name
from aiostream_data.rows.lineage import Beside, Lineage, MadeOf, ids_side_by_side
from aiostream_data.rows.records import Chunk, concat, lineage_of
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.transforms.interleave import InterleaveOrder
from aiostream_data.transforms.randomness import key_of

CALLS_PER_HOP = 64
"""Maximum number of elements for which one worker-thread call runs the user function."""

NOTHING = PythonIterable(iterable=(), one_shot=False)
"""Empty dataset for a row that the stage skips because the user function failed."""

SMALL_ROWS = 8192
"""An inner in-memory dataset with at most this many rows is read without a separate run."""

_INNER_RECORD = re.compile(r"record: from_iterable\(.*\) record (\d+)")
"""Regular expression for an error note that contains the number of the failed record of an iterable."""


@dataclass
class InterleaveStage(Stage):
    """Stage of an ``Interleave`` plan node. With one slot, this stage also implements ``flat_map``.

    The row ids of an emitted row consist of its ids in the inner dataset and the ids of the outer row (the input
    element).
    """

    kind: ClassVar[str] = "interleave"

    _log: MergeLog = field(default_factory=MergeLog)
    _state: State = None
    _namespaces: dict[str, Namespace] = field(default_factory=dict)

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Interleave = self.node
        self.counters.waits_for = "user"
        order = InterleaveOrder(node.cycle_length, node.block_length, node.ordered)
        async with asyncio.TaskGroup() as group:
            merge = Merge(_InnerStreams(self, inlets[0], outlet, group), order, self._log)
            if self._state is not None:
                await merge.resume(self._state)
                if gains_rows(self.context, node.input):
                    order.more_streams()
            await merge.run(outlet)

    async def nodes_of(self, rows: Chunk) -> list[Node]:
        """Call the user's function for every row and return the resulting plans. A skipped row gets an empty plan.

        Raises:
            PartlyDone: The user's function failed, or failed on more rows than allowed. The ``done`` attribute contains
                the plans of all rows before the failure.
        """
        node: Interleave = self.node
        results = await self._results(rows, handling_of(node.on_error))
        self.counters.skipped += len(results.lost)
        self.counters.replaced += len(results.failed) - len(results.lost)
        self.counters.retries += results.retries
        context, count, failure = self.context, results.rows, results.failure
        letters = context.services.dead_letters
        try:
            await letters.take(context.place(node), context.nth(node), node, count, results.failed)
        except PartlyDone as spent:
            count, failure = results.failed[spent.done].row, spent.error
        nodes: list[Node] = []
        made = iter(results.values)
        try:
            for row in range(count):
                nodes.append(NOTHING if row in results.lost else self._node_made_for(rows, row, next(made)))
        except PlanError as error:
            failure = error
        if failure is not None:
            raise PartlyDone(nodes, failure)
        return nodes

    async def nodes_made_before(self, rows: Chunk) -> list[Node]:
        """Call the user's function again for rows that were not skipped in an earlier run. Return the plans."""
        results = await self._results(rows, handling_of(self.node.on_error).of_given_rows)
        return [self._node_made_for(rows, row, result) for row, result in enumerate(results.checked())]

    async def _results(self, rows: Chunk, handling: Handling) -> CallResults:
        services = self.context.services
        user = UserFunction(
            self.node.function,
            services.origins.describe,
            handling=handling,
            pause=services.pause,
            takes_batches=gives_batches(self.node.input),
        )
        results: CallResults = await self.hop(call_rows, user, rows)
        return results

    def _node_made_for(self, rows: Chunk, row: int, result: Any) -> Node:
        try:
            return _as_node(result, self.node)
        except PlanError as error:
            error.add_note(f"record: {self.context.services.origins.describe(rows.ids, row)}")
            raise

    def context_of(self, inner: Node, outer: Lineage) -> RunContext:
        """Return the run context of an inner plan. The context depends only on the inner plan and the outer row."""
        mine = self.context
        row = expression(outer.ids.tolist()[0], mine.services.origins.stable)
        return replace(
            mine,
            path=int(key_of(mine.path, mine.keys[self.node], *row)) >> 1,
            numbers={part: index for index, part in enumerate(walk(inner))},
            keys=keys_of(inner),
            drained=Drained(),
            prefix=f"{mine.prefix}{mine.numbers[self.node]}/",
            made_by=f"{mine.made_by}{self.node.label}/",
        )

    # -- saved position: the merge order, and the outer row and state of each open inner dataset

    def at(self, rows: int, book: BookWriter) -> State:
        found = self._log.at(rows, book)
        if found is None:
            return self._at_outer(self.context.services.book.carried_over(self._state, book), 0, book)
        state, opened = found
        return self._at_outer(state, opened, book)

    def _at_outer(self, state: dict[str, Any] | None, opened: int, book: BookWriter) -> State:
        return {"op": "interleave", "merge": state, "input": self.inputs[0].at(opened, book)}

    def forget(self, rows: int) -> None:
        opened = self._log.forget(rows)
        if opened is not None:
            self.inputs[0].forget(opened)

    def resume(self, state: State) -> Sequence[State]:
        state = taken_up(state, "interleave")
        self._state = state["merge"]
        return (state["input"],)

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "merge", "input")
        if fields["merge"].value is None and place.rows.least:
            raise fields["merge"].refused("must be the position of the order")
        if fields["merge"].value is not None:
            merge = fields["merge"].fields("order", "streams")
            slots = (1, MAX_COUNT)
            if place.node is not None and place.scope.exact:
                slots = (place.node.cycle_length, place.node.cycle_length)
            for stream, _ in check_merge(place, merge["order"], merge["streams"], slots):
                parts = stream.fields("outer", "inner")
                place.held(parts["outer"], 1, 1)
                if parts["inner"].value is not None:  # an in-memory dataset can have a state here
                    yield place.of_node(parts["inner"], None)
        yield place.of_input(fields["input"], rows=place.rows.any)

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute rows of inner datasets, grouped by outer row."""
        inner_ids, outer_ids = lineage.ids.split()
        entries = [_two_of(lineage.of(row)) for row in range(len(lineage))]
        inner = Lineage(inner_ids, [entry[0] for entry in entries])
        outer = Lineage(outer_ids, [entry[1] for entry in entries])
        known: dict[bytes, list[int]] = {}
        for row, key in enumerate(outer_ids.keys()):
            known.setdefault(key, []).append(row)
        firsts = np.array([rows[0] for rows in known.values()])
        outer_rows = await self.context.recall(self.node.input, outer.take(firsts))
        parts = []
        plans = await self.nodes_made_before(outer_rows)
        for number, (plan, rows) in enumerate(zip(plans, known.values(), strict=True)):
            made_for = lineage_of(outer_rows.slice(number, number + 1))
            parts.append(_with_outer(await self._recall_inner(plan, inner.take(np.array(rows)), made_for), made_for))
        return in_order(concat(parts), [row for rows in known.values() for row in rows])

    async def _recall_inner(self, plan: Node, inner: Lineage, outer: Lineage) -> Chunk:
        if _is_small(plan):
            return rows_of(plan, self.namespace_of_small(plan), *local(inner.ids))
        return await self.context_of(plan, outer).recall(plan, inner)

    def namespace_of_small(self, inner: Node) -> Namespace:
        """Return the namespace shared by all small in-memory inner datasets of the same operator.

        The row ids stay unique, because each id also contains the outer row. With millions of datasets, one namespace
        per dataset would create too many namespaces.
        """
        label = str(inner.label)
        if label not in self._namespaces:
            context = self.context
            name = f"{label}()" if isinstance(inner, PythonIterable) else label
            source = source_of(context.path, context.keys[self.node])
            number = keys_of(inner)[inner]
            self._namespaces[label] = context.services.origins.open(source, number, context.epoch, lambda _: name)
        return self._namespaces[label]


@dataclass
class _InnerStreams:
    """Streams of inner datasets.

    This class calls the user's function for each element and opens the returned dataset.
    """

    stage: InterleaveStage
    inlet: Inlet
    outlet: Outlet
    group: asyncio.TaskGroup
    _made: deque[tuple[Node, Lineage]] = field(default_factory=deque)
    _opened: deque[Stream] = field(default_factory=deque)
    _chunk: Chunk | None = None
    _row: int = 0
    _given: int = 0
    _at_end: bool = False
    _failure: Exception | None = None  # raised after the inner datasets made so far

    is_ready = False

    async def next(self) -> Stream | None:
        await self._open_ahead()
        if self._opened:
            self._given += 1
            return self._opened.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    async def again(self, state: State, given: int) -> Stream | None:
        stage = self.stage
        outer = stage.context.services.book.rows(state["outer"])
        try:
            rows = await stage.context.recall_held(stage.node.input, outer)
        except ShardGoneError:
            if outer.of(0) is not None:  # the outer row has several source rows, and some shards may still exist
                raise
            return None
        self._given += 1
        may_be_left_out = not given and state["inner"] is None  # the row may have been skipped with an empty dataset
        (inner,) = await (stage.nodes_of(rows) if may_be_left_out else stage.nodes_made_before(rows))
        if state["inner"] is None and given and not _is_small(inner):
            raise StateMismatchError(
                [f"the state lacks the position of {inner.label}, which had emitted {given} rows"],
                f"Return the same kind of dataset as before from the function of {stage.node.label}().",
            )
        stage.context.services.runner.check_inner(inner, state["inner"], given)
        return self._open(inner, lineage_of(rows), given, state["inner"])

    def ended(self) -> None:
        self._given -= 1

    async def _open_ahead(self) -> None:
        node: Interleave = self.stage.node
        while self._given + len(self._opened) <= node.cycle_length:
            if not self._made and not await self._has_made_more():
                return
            self._opened.append(self._open(*self._made.popleft()))

    async def _has_made_more(self) -> bool:
        """Call the user's function for the next elements. Return True if inner datasets are ready to open."""
        if self._failure is None:
            try:
                await self._make_more()
            except PartlyDone as partly:
                self._made += partly.done
                self._failure = as_raisable(partly.error)
            except Exception as error:  # noqa: BLE001 - raised when the data sets before are used up
                self._failure = error
        return bool(self._made)

    async def _make_more(self) -> None:
        node: Interleave = self.stage.node
        if self._chunk is None or self._row == len(self._chunk):
            self._chunk = None if self._at_end else await self.inlet.receive()
            self._row = 0
            if self._chunk is None:
                self._at_end = True
                return
        stop = min(self._row + min(CALLS_PER_HOP, node.cycle_length + 1), len(self._chunk))
        part = self._chunk.slice(self._row, stop)
        self._row = stop
        try:
            self._made += _made_for(part, await self.stage.nodes_of(part))
        except PartlyDone as partly:
            raise PartlyDone(_made_for(part, partly.done), partly.error) from None

    def _open(self, inner: Node, outer: Lineage, given: int = 0, state: State = None) -> Stream:
        context = self.stage.context_of(inner, outer)
        budget = context.services.budget
        sender, receiver = open_channel(2, budget.channel_nbytes)
        receiver.counters = self.stage.counters
        receiver.wanted_for(self.outlet.is_awaited)
        receiver.on_wait = budget.look_soon
        place = _InnerPlace(outer, given, state, context.services.book)
        if _is_small(inner):
            _fill(sender, inner, self.stage.namespace_of_small(inner), outer, given, budget)
        else:
            work = _forward(context, inner, sender, place, self._name_inner)
            self.group.create_task(work, name=f"inner {inner.label}")
        return Stream(receiver, place)

    def _name_inner(self, error: BaseException, inner: Node, outer: Lineage) -> None:
        """Add notes that name the outer row and the user function to an error of an inner dataset."""
        node: Interleave = self.stage.node
        record = self.stage.context.services.origins.describe(outer.ids, 0)
        name = function_name(node.function)
        if not isinstance(inner, PythonIterable):
            error.add_note(f"in the dataset that {name} returned for {record}, by {node.noted.removeprefix('stage: ')}")
            if _could_skip(inner, error):
                error.add_note(
                    f"to skip this: pass on_error= to the dataset that {name} returns, since "
                    f"on_error= of {node.label}() and open() does not apply to its files"
                )
            return
        notes = getattr(error, "__notes__", [])
        for number, note in enumerate(notes):
            if note == inner.noted:
                notes[number] = node.noted
            elif found := _INNER_RECORD.fullmatch(note):
                notes[number] = f"record: element {found[1]} of those made for {record}"
        error.add_note(f"function: {name}")


@dataclass
class _InnerPlace:
    """Position of one inner dataset.

    Attributes:
        outer: Outer row (input element) that produced the inner dataset.
        first: Number of rows emitted before this run opened the inner dataset.
        state: Saved state from which the inner dataset was resumed, or None.
        book: Table of the rows that ``state`` refers to.
        position: Position of the inner dataset's run. None for small in-memory datasets, which need only a row number.
    """

    outer: Lineage
    first: int
    state: State
    book: Book
    position: Position | None = None

    def at(self, given: int, book: BookWriter) -> State:
        if self.position is None:
            inner = self.book.carried_over(self.state, book)
        else:
            inner = self.position.at(given - self.first, book)
        return {"outer": book.rows(self.outer), "inner": inner}

    def forget(self, given: int) -> None:
        if self.position is not None:
            self.position.forget(given - self.first)


def _made_for(rows: Chunk, nodes: Sequence[Node]) -> list[tuple[Node, Lineage]]:
    """Pair each inner plan with the outer row that produced the plan."""
    return [(inner, lineage_of(rows.slice(row, row + 1))) for row, inner in enumerate(nodes)]


def _with_outer(chunk: Chunk, outer: Lineage) -> Chunk:
    """Append the ids of an outer row to the ids of every row of a chunk."""
    repeated = outer.take(np.zeros(len(chunk), np.int64))
    ids, made_of = ids_side_by_side([lineage_of(chunk), repeated])
    return chunk.with_ids(ids).with_made_of(made_of)


def _two_of(entry: MadeOf | None) -> tuple[MadeOf | None, MadeOf | None]:
    """Split a lineage entry into one entry for the inner row and one entry for the outer row."""
    return (entry.of(0), entry.of(1)) if isinstance(entry, Beside) else (None, None)


def _as_node(result: Any, node: Interleave) -> Node:
    plan = getattr(result, "plan", None)
    if isinstance(plan, Node):
        return rewrite(plan)
    if isinstance(result, Iterable | AsyncIterable) and not isinstance(result, (str, bytes, dict)):
        return PythonIterable(
            iterable=result, one_shot=False, written_at=node.written_at
        )  # the function returns a new iterable on every call
    raise PlanError(
        f"the function of {node.label}() must return a Dataset or an iterable, "
        f"but {function_name(node.function)} returned {summary(result)}"
    )


def _is_small(node: Node) -> bool:
    if isinstance(node, PythonIterable):
        return isinstance(node.iterable, (list, tuple)) and len(node.iterable) <= SMALL_ROWS
    if isinstance(node, (TensorSlices, Range)) and node.permuted is not None:
        return False
    if isinstance(node, TensorSlices):
        return node.times == 1 and node.rows <= SMALL_ROWS
    if isinstance(node, Tensors):
        return node.times is not None and node.times <= SMALL_ROWS
    return isinstance(node, Range) and len(node.numbers) <= SMALL_ROWS


def _could_skip(inner: Node, error: BaseException) -> bool:
    """Return True if ``error`` is damage that a source of the inner plan could skip with ``on_error="skip"``."""
    notes = getattr(error, "__notes__", [])
    return damage_of(error, delivers_later=False) is not None and any(
        isinstance(part, ReadFiles) and part.noted in notes and handling_of(part.on_error).kind == "raise"
        for part in walk(inner)
    )


def _fill(sender: Sender[Chunk], node: Node, namespace: Namespace, outer: Lineage, skip: int, budget: Budget) -> None:
    with sender:
        for chunk in chunks_of(node, namespace, skip):
            nbytes = chunk_nbytes(chunk)
            sender.put(_with_outer(chunk, outer).with_lease(budget.charge(nbytes, READ_AHEAD)), nbytes)


async def _forward(
    context: RunContext,
    node: Node,
    sender: Sender[Chunk],
    place: _InnerPlace,
    name: Callable[[BaseException, Node, Lineage], None],
) -> None:
    with sender, carrying(sender), _named(lambda error: name(error, node, place.outer)):
        async with context.open(node, place.state) as receiver:
            place.position = receiver.position
            receiver.wanted_for(lambda: sender.is_awaited)
            rows = 0
            async for chunk in receiver:
                rows += len(chunk)
                await sender.send(_with_outer(chunk, place.outer), chunk_nbytes(chunk))
            receiver.check(rows)
            sender.declare(rows)


@contextmanager
def _named(name: Callable[[BaseException], None]) -> Iterator[None]:
    """If the ``with`` block raises an error other than ReceiverClosed, pass the error to the function ``name``."""
    try:
        yield
    except ReceiverClosed:
        raise
    except Exception as error:
        name(error.error if isinstance(error, CarriedError) else error)
        raise
