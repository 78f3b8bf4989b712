"""Run inner datasets, several at a time. A user function creates one inner dataset from each element."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from aiostream_data._engine.calls.user_code import CallResults, UserFunction
from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.failures.element_summary import summary
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.drained import Drained
from aiostream_data._engine.flow.merge import Merge
from aiostream_data._engine.flow.recall import in_order
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.merge_log import MergeLog, check_merge
from aiostream_data._engine.resume.origins import Namespace, always, local, source_of
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data._engine.resume.row_keys import expression
from aiostream_data._engine.sources.listed_shards import gains_rows
from aiostream_data._engine.sources.memory_rows import rows_of
from aiostream_data._engine.stages.interleaving.file_losses import FileLosses, counts_losses
from aiostream_data._engine.stages.interleaving.inner_calls import InnerCalls
from aiostream_data._engine.stages.interleaving.inner_rows import Inner, are_lists, is_sequence, is_small, of_one
from aiostream_data._engine.stages.interleaving.inner_streams import InnerStreams, made_by
from aiostream_data._engine.stages.interleaving.single_tables import with_single_tables
from aiostream_data._engine.stages.interleaving.small_batches import batches_if_sound, batches_with_ids
from aiostream_data.errors import PlanError
from aiostream_data.failing.policies import Handling, handling_of
from aiostream_data.plan.base import Node, keys_of, walk
from aiostream_data.plan.batched import gives_batches
from aiostream_data.plan.operators import Batch, Interleave
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.sources import PythonIterable
from aiostream_data.plan.written import function_name
from aiostream_data.rows.lineage import Beside, Lineage, MadeOf
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.records import Chunk, concat, lineage_of
from aiostream_data.rows.text_arrays import BytesArray, TextArray
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.transforms.interleave import InterleaveOrder
from aiostream_data.transforms.randomness import key_of

NOTHING = ()
"""Empty dataset for a row that the stage skips because the user function failed."""


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

    @cached_property
    def calls(self) -> InnerCalls:
        """The calls of the user's function."""
        return InnerCalls(self)

    @property
    def counts_losses(self) -> bool:
        return counts_losses(self.context, self.node)

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Interleave = self.node
        self.counters.waits_for = "user"
        order = InterleaveOrder(node.cycle_length, node.block_length, node.ordered)
        async with asyncio.TaskGroup() as group:
            streams = InnerStreams(self, inlets[0], outlet, group)
            merge = Merge(streams, order, self._log)
            if self.counts_losses:
                streams.losses = FileLosses(merge)
            if self._state is not None:
                await merge.resume(self._state)
                if gains_rows(self.context, node.input):
                    order.more_streams()
            try:
                await merge.run(outlet)
            except PartlyDone as partly:  # the losses of files exceed their error budget
                partly.error.add_note(f"in a {made_by(node)}")
                raise

    async def inners_of(self, rows: Chunk) -> list[Inner]:
        """Call the user's function for every row and return the inner datasets; see :meth:`inners_from`."""
        return await self.inners_from(rows, await self.results_of(rows))

    async def results_of(self, rows: Chunk) -> CallResults:
        """Call the user's function for every row, with the error policy of the operator."""
        return await self._results(rows, handling_of(self.node.on_error))

    async def inners_from(self, rows: Chunk, results: CallResults) -> list[Inner]:
        """Return the inner datasets, given the results of the user's function. A skipped row gets an empty one.

        Raises:
            PartlyDone: The user's function failed, or failed on more rows than allowed. The ``done`` attribute contains
                the datasets of all rows before the failure.
        """
        node: Interleave = self.node
        self.counters.skipped += len(results.lost)
        self.counters.replaced += len(results.failed) - len(results.lost)
        self.counters.retries += results.retries
        context, count, failure = self.context, results.rows, results.failure
        letters = context.services.dead_letters
        try:
            await letters.take(context.place(node), context.nth(node), node, count, results.failed)
        except PartlyDone as spent:
            count, failure = results.failed[spent.done].row, spent.error
        if failure is None and not results.lost:
            if are_lists(results.values) or all(map(is_sequence, results.values)):
                return results.values
            ready = list(map(_ready_inner, results.values))
            if all(inner is not None for inner in ready):
                return cast(list[Inner], ready)
        inners: list[Inner] = []
        made, lost = iter(results.values), frozenset(results.lost)
        try:
            for row in range(count):
                inners.append(NOTHING if row in lost else self._inner_made_for(rows, row, next(made)))
        except PlanError as error:
            failure = error
        if failure is not None:
            raise PartlyDone(inners, failure)
        return inners

    async def inners_made_before(self, rows: Chunk) -> list[Inner]:
        """Call the user's function again for rows that were not skipped in an earlier run. Return the datasets."""
        results = await self._results(rows, handling_of(self.node.on_error).of_given_rows)
        return [self._inner_made_for(rows, row, result) for row, result in enumerate(results.checked())]

    def plan_of(self, inner: Inner) -> Node:
        """Return the plan of an inner dataset."""
        return inner if isinstance(inner, Node) else _iterable(inner, self.node)

    async def _results(self, rows: Chunk, handling: Handling) -> CallResults:
        services = self.context.services
        user = UserFunction(
            self.node.function,
            services.origins.describe,
            handling=handling,
            pause=services.pause,
            takes_batches=gives_batches(self.node.input),
            pool=services.blocks,
        )
        return await self.calls.call(user, rows)

    def _inner_made_for(self, rows: Chunk, row: int, result: Any) -> Inner:
        ready = _ready_inner(result)
        if ready is not None:
            return ready
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
            made_from=outer.ids,
            sharers=mine.sharers * self.node.cycle_length,
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
        plans = map(self.plan_of, await self.inners_made_before(outer_rows))
        for number, (plan, rows) in enumerate(zip(plans, known.values(), strict=True)):
            made_for = lineage_of(outer_rows.slice(number, number + 1))
            parts.append(of_one(await self._recall_inner(plan, inner.take(np.array(rows)), made_for), made_for))
        return in_order(concat(parts), [row for rows in known.values() for row in rows])

    async def _recall_inner(self, plan: Node, inner: Lineage, outer: Lineage) -> Chunk:
        if isinstance(plan, Batch) and is_small(plan):
            describe = self.context.services.origins.describe
            batches = batches_if_sound(plan, self.namespace_of_small, describe)
            if batches is not None:
                return batches_with_ids(batches, inner.ids)
        elif is_small(plan):
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
            name = f"{label}()" if type(inner) is PythonIterable else label
            source = source_of(context.path, context.keys[self.node])
            number = keys_of(inner)[inner]
            self._namespaces[label] = context.services.origins.open(
                source, number, context.epoch, always(name), kind=label
            )
        return self._namespaces[label]


def _two_of(entry: MadeOf | None) -> tuple[MadeOf | None, MadeOf | None]:
    """Split a lineage entry into one entry for the inner row and one entry for the outer row."""
    return (entry.of(0), entry.of(1)) if isinstance(entry, Beside) else (None, None)


def _ready_inner(result: Any) -> Inner | None:
    """Return a result that needs no checks as an inner dataset, or None for any other result."""
    if is_sequence(result):
        inner: Inner = result
        return inner
    if isinstance(result, (BytesArray, TextArray, RaggedArray)):
        return list(result)
    plan = getattr(result, "plan", None)
    return plan if isinstance(plan, Node) and not plan.inputs else None


def _as_node(result: Any, node: Interleave) -> Node:
    plan = getattr(result, "plan", None)
    if isinstance(plan, Node):
        return with_single_tables(rewrite(plan))
    has_items = isinstance(result, Iterable | AsyncIterable) and not isinstance(result, (str, bytes, dict))
    if has_items and not (isinstance(result, np.ndarray) and result.ndim == 0):
        return _iterable(result, node)
    raise PlanError(
        f"the function of {node.label}() must return a Dataset or an iterable, "
        f"but {function_name(node.function)} returned {summary(result)}"
    )


def _iterable(result: Any, node: Interleave) -> PythonIterable:
    # The function returns a new iterable on every call, so the iterable can be read again.
    return PythonIterable(iterable=result, one_shot=False, written_at=node.written_at)
