"""Await a user's coroutine function for each element, for many elements concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from aiostream_data._engine.calls.argument_errors import as_arguments, misfit
from aiostream_data._engine.calls.awaited_rows import AwaitedRow, AwaitedRows
from aiostream_data._engine.calls.loop_states import LoopStates
from aiostream_data._engine.calls.loop_steps import LoopSteps
from aiostream_data._engine.calls.predicates import is_scalar_bool, no_scalar_bool
from aiostream_data._engine.calls.result_budget import ResultBudget
from aiostream_data._engine.calls.result_sizes import shared_results
from aiostream_data._engine.calls.view_arguments import elements_with_views, views_of
from aiostream_data._engine.calls.worker_state import StateKeys
from aiostream_data._engine.failures.carried_error import PartlyDone, as_raisable
from aiostream_data._engine.failures.element_summary import note_call, rows_within, summary
from aiostream_data._engine.failures.failed_row import Failed
from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.chunk_sizes import CHUNK_ROWS
from aiostream_data._engine.flow.context import value_of
from aiostream_data._engine.flow.stage import CallStage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.row_keys import rng_stream
from aiostream_data.errors import RecordTimeoutError, StageBuildError
from aiostream_data.executors.base import Outcome
from aiostream_data.executors.failure import workable
from aiostream_data.failing.policies import Handling, handling_of
from aiostream_data.plan.batched import gives_batches
from aiostream_data.plan.operators import Call, Filter
from aiostream_data.plan.written import function_name
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.object_nbytes import object_nbytes
from aiostream_data.rows.records import Chunk, Items, gather, lineage_of, same_layout
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.collate import collate, collate_results
from aiostream_data.transforms.randomness import RecordGenerator

AUTO_CONCURRENCY = 64
"""Number of coroutines awaited concurrently with ``concurrency=AUTO``."""

HELD = 4
"""Maximum number of buffered rows per awaited row.

Buffered rows let later calls continue while ordered output waits for a slow row.
"""

CHUNK_SHARE = 32
"""Maximum size of an output chunk, as a fraction (1/32) of the memory limit."""

FLUSH_S = 0.005
"""Maximum seconds that a finished result waits for other results before its chunk is sent."""


@dataclass
class CoroutineStage(CallStage):
    """Stage that runs a ``map`` or ``filter`` operator whose function is a coroutine, on the engine's event loop."""

    _ready: list[AwaitedRow] = field(default_factory=list)
    _ready_nbytes: int = 0
    _since: float = 0.0
    _state: Any = None
    _rows: AwaitedRows | None = None
    _failure: Exception | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        node: Call = self.node
        self._handling = handling_of(node.on_error)
        self._steps = LoopSteps(self.counters.extra)

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Call = self.node
        limit = node.concurrency if isinstance(node.concurrency, int) else AUTO_CONCURRENCY
        self.counters.waits_for = "user"
        self.counters.workers = limit
        self.counters.runs_in = "loop"
        await self._make_state()
        if self.context.services.workers.one_at_a_time:
            await self._await_in_turn(inlets[0], outlet)
            return
        rows = AwaitedRows(self._attempt, at_once=limit, held=HELD * limit, ordered=node.ordered)
        self._rows = rows
        shared = shared_results(self.context, [node], limit, outlet.is_awaited)
        results = ResultBudget(outlet.budget, lambda: rows.holding + len(self._ready), shared)
        feed = self._each(self.held_then(inlets[0]), results)
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    rows.start(feed, group)
                    await self._give_out(rows, results, outlet)
                except BaseException as error:
                    rows.stop()
                    empty_frames(error)  # a stored error must not keep rows alive through its frames
                    raise
        finally:
            rows.drop()
            self._rows = None  # a cycle would keep the user's function until a garbage collection
            self._ready.clear()
            if isinstance(feed, AsyncGenerator):  # the garbage collector might close it after its loop
                await feed.aclose()

    async def _await_in_turn(self, inlet: Inlet, outlet: Outlet) -> None:
        shared = shared_results(self.context, [self.node], 1, outlet.is_awaited)
        results = ResultBudget(outlet.budget, lambda: len(self._ready), shared)
        feed = self._each(self.held_then(inlet), results)
        try:
            async for entry in feed:
                await self._attempt(entry)
                await self._take_out([entry], results, outlet)
                await self._flush(outlet)
        finally:
            await feed.aclose()

    async def _make_state(self) -> None:
        node: Call = self.node
        if not node.wants_state or node.init is None:
            return
        services = self.context.services
        key = services.features.of(StateKeys).of(self.context.place(node), node.init)
        self._state = await services.features.of(LoopStates).of(key, node.init)

    # -- emitting results

    async def _give_out(self, rows: AwaitedRows, results: ResultBudget, outlet: Outlet) -> None:
        while entries := await rows.take():
            await self._take_out(entries, results, outlet)
            del entries
            waited = perf_counter() - self._since
            if rows.unfinished and len(self._ready) < CHUNK_ROWS and waited < FLUSH_S:
                await asyncio.sleep(FLUSH_S - waited)
                if rows.is_ready:
                    continue
            await self._flush(outlet)  # ready results must not wait for a slow row
        await self._flush(outlet)
        if self._failure is not None:
            raise self._failure

    async def _take_out(self, entries: list[AwaitedRow], results: ResultBudget, outlet: Outlet) -> None:
        for entry in entries:
            self.counters.busy_s += entry.busy_s
            if entry.error is not None:
                error = as_raisable(self._noted(entry, entry.error))
                if self.node.ordered or self._rows is None:
                    await self._flush(outlet)
                    raise error
                self._failure = self._failure or error  # raised when the calls in progress have ended
                self._rows.take_no_more()
                continue
            nbytes = object_nbytes(entry.value)
            if entry.room is not None:
                results.returned(entry.room, object_nbytes(entry.element), nbytes)
            self._ready.append(entry)
            self._ready_nbytes += nbytes
            if self._ready_nbytes >= outlet.budget.limit // CHUNK_SHARE:
                await self._flush(outlet)

    async def _flush(self, outlet: Outlet) -> None:
        entries, self._ready, self._ready_nbytes = self._ready, [], 0
        self._since = perf_counter()
        if not entries:
            return
        spent: BaseException | None = None
        if self._handling.interferes:
            entries, spent = await self._within_budget(entries)
        given = [entry for entry in entries if not entry.skipped and not entry.left_out]
        failed = [entry.failed for entry in entries if entry.failed is not None]
        lost = len(entries) - len(given)
        skipped = sum(entry.skipped for entry in entries)
        if self.log is not None:
            numbers = np.array([entry.number for entry in entries], np.int64)
            kept = np.array([entry.number for entry in given], np.int64) if lost else None
            self.give_out(numbers, kept)
        if self.kept is not None:
            self.kept.begin(len(entries)).kept = np.array(
                [number for number, entry in enumerate(entries) if not entry.skipped and not entry.left_out], np.int64
            )
        if self._handling.interferes:
            self._count(entries, failed, skipped)
        self.counters.dropped += lost - skipped
        outlet.dropped += lost
        if isinstance(self.node, Filter):
            for alike in _of_one_layout(given):
                await outlet.send_work(_gathered, alike)
        elif given:
            await outlet.send_work(_collated, given)
        if spent is not None:
            raise as_raisable(spent)

    def _count(self, entries: list[AwaitedRow], failed: list[Failed], skipped: int) -> None:
        self.counters.skipped += skipped
        self.counters.replaced += len(failed) - skipped
        self.counters.retries += sum(entry.retries for entry in entries)

    async def _within_budget(self, entries: list[AwaitedRow]) -> tuple[list[AwaitedRow], BaseException | None]:
        """Return the entries before the first failure that exceeds the error limit, and the error for this failure."""
        context, node = self.context, self.node
        letters = context.services.dead_letters
        bad = [(number, entry.failed) for number, entry in enumerate(entries) if entry.failed is not None]
        failed = [one for _, one in bad]
        try:
            await letters.take(context.place(node), context.nth(node), node, len(entries), failed)
        except PartlyDone as spent:
            return entries[: bad[spent.done][0]], spent.error
        return entries, None

    async def _each(self, chunks: AsyncIterator[Chunk], results: ResultBudget) -> AsyncGenerator[AwaitedRow, None]:
        number, keeps = 0, isinstance(self.node, Filter)
        views = views_of(self.node.function_called)
        async for chunk in chunks:
            if self.log is not None:
                number = self.log.take_in(lineage_of(chunk))
            made_of = chunk.made_of or [None] * len(chunk)
            elements = elements_with_views(chunk, views, self.context.services.blocks)
            for row, (element, entry) in enumerate(zip(elements, made_of, strict=True)):
                room = results.room_for(object_nbytes(element))  # awaited below, so that no variable keeps the charge
                yield AwaitedRow(element, chunk.ids, row, entry, number, await room, chunk if keeps else None)
                number += 1
            del chunk

    def awaited(self) -> list[tuple[str, float, bool]]:
        """Return (record name, ``perf_counter()`` start time, True if executing now) for each awaited call.

        Any thread may call this method.
        """
        describe = self.context.services.origins.describe
        awaiting = {} if self._rows is None else self._rows.awaiting.copy()
        return [
            (describe(entry.ids, entry.row), since, getattr(task.get_coro(), "cr_running", False))
            for task, (entry, since) in awaiting.items()
        ]

    # -- one row

    async def _attempt(self, entry: AwaitedRow) -> None:
        handling = self._handling
        started = perf_counter()
        while True:
            error = await self._call(entry)
            if error is None or entry.retries >= handling.retries or not _may_be_handled(error):
                break
            await asyncio.sleep(handling.pause_s(entry.retries))
            entry.retries += 1
        entry.busy_s = perf_counter() - started
        if error is not None:
            self._give_up(entry, error, handling)
        if isinstance(self.node, Filter) and not entry.skipped and entry.error is None:
            self._decide(entry)

    def _decide(self, entry: AwaitedRow) -> None:
        """Keep or discard a row according to the predicate's result."""
        if is_scalar_bool(entry.value):
            entry.left_out, entry.value = not entry.value, entry.element
        else:
            entry.error = no_scalar_bool(self.node.function_called, entry.value)

    async def _call(self, entry: AwaitedRow) -> BaseException | None:
        """Await the function once. Return the exception that the function raised, or None."""
        node: Call = self.node
        arguments = as_arguments(entry.element)
        options: dict[str, Any] = {}
        if node.wants_rng:
            options["rng"] = self._rng(entry)
        if node.wants_state:
            options["state"] = self._state
        try:
            call = self._steps.watched(node.function_called(*arguments, **options), perf_counter())
            entry.value = await (call if node.timeout_s is None else _within(node.timeout_s, call))
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self._is_cancelled():
                raise
            return misfit(error, node.function_called, entry.element, options) or workable(error)
        return None

    def _is_cancelled(self) -> bool:
        """Return True if the engine cancelled the stage, False if the user function raised ``CancelledError``."""
        task = asyncio.current_task()
        stopped = self._rows is None or self._rows.stopped  # no rows: recall() runs in its caller's task
        return stopped and task is not None and task.cancelling() > 0

    def _give_up(self, entry: AwaitedRow, error: BaseException, handling: Handling) -> None:
        """Mark a failed row as skipped or replaced, or store the error that ends the stream."""
        if handling.kind == "raise" or not _may_be_handled(error):
            entry.error = error
            return
        noted = self._noted(entry, error)
        entry.failed = Failed.told(
            noted, entry.ids.row(entry.row), entry.made_of, summary(entry.element), handling.kind
        )
        entry.skipped = handling.kind == "skip"
        entry.value = handling.value

    def _noted(self, entry: AwaitedRow, error: BaseException) -> BaseException:
        """Add notes about this row to an error just before the report, because several rows may share an exception."""
        record = self.context.services.origins.describe(entry.ids, entry.row)
        rows = rows_within(entry.ids.row(entry.row), entry.made_of)
        name, is_batch = function_name(self.node.function_called), gives_batches(self.node.input)
        note_call(error, name, record, entry.element, rows, is_batch=is_batch)
        return error

    def _rng(self, entry: AwaitedRow) -> np.random.Generator:
        node: Call = self.node
        key = self.context.key(node, node.seed, "rng", self.context.epoch)
        stream = rng_stream(key, entry.ids.row(entry.row).tolist()[0], self.context.services.origins.stable)
        # Each call needs a separate generator: other rows are awaited at the same time.
        return RecordGenerator(stream.key).at(stream.split, stream.ordinal)

    # -- recall

    async def recall(self, lineage: Lineage) -> Chunk:
        chunk = await self.context.recall(self.node.input, lineage)
        if isinstance(self.node, Filter):
            return chunk  # lineage names only rows that the filter kept
        await self._make_state()
        self._handling = self._handling.of_given_rows
        results = []
        for row, element in enumerate(elements_with_views(chunk, views_of(self.node.function_called))):
            entry = AwaitedRow(element, chunk.ids, row, None, row)
            await self._attempt(entry)
            self.counters.busy_s += entry.busy_s
            if entry.error is not None:
                self._noted(entry, entry.error)
            results.append(value_of(Outcome(entry.value, entry.error)))
        return collate(results, chunk.ids).with_made_of(chunk.made_of)


async def _within(seconds: float, call: Any) -> Any:
    """Await a coroutine call with a timeout.

    Raises:
        RecordTimeoutError: The call took longer than ``seconds`` and was cancelled.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await call
    except TimeoutError:
        if not limit.expired():
            raise  # raised by the user function
        raise RecordTimeoutError(
            f"a call took longer than the timeout of {seconds:g} s, and was cancelled. Raise timeout=, or make the "
            "function faster."
        ) from None


def _of_one_layout(entries: list[AwaitedRow]) -> Iterator[list[AwaitedRow]]:
    """Split the entries into groups of consecutive rows with the same layout.

    Each group of rows fits into one chunk.
    """
    alike: list[AwaitedRow] = []
    for entry in entries:
        if alike and not _fit(_chunk_of(alike[-1]), _chunk_of(entry)):
            yield alike
            alike = []
        alike.append(entry)
    if alike:
        yield alike


def _may_be_handled(error: BaseException) -> bool:
    """Return True if the error policy may handle ``error``.

    The policy never handles an error that occurs because the function's parameters do not match the element.
    """
    return isinstance(error, Exception) and not isinstance(error, StageBuildError)


def _fit(chunk: Chunk, other: Chunk) -> bool:
    if chunk is other or (isinstance(chunk, Items) and isinstance(other, Items)):
        return True
    return same_layout([chunk, other])


def _gathered(entries: list[AwaitedRow]) -> Chunk:
    """Copy the rows that a filter kept into one chunk."""
    chunks = {id(entry.chunk): _chunk_of(entry) for entry in entries}
    numbers = {key: number for number, key in enumerate(chunks)}
    which = np.array([numbers[id(entry.chunk)] for entry in entries], np.int32)
    return gather(list(chunks.values()), which, np.array([entry.row for entry in entries], np.int64))


def _chunk_of(entry: AwaitedRow) -> Chunk:
    assert entry.chunk is not None, "rows that are given on keep their chunk"
    return entry.chunk


def _collated(entries: list[AwaitedRow]) -> Chunk:
    ids = RowIds.concat([entry.ids.row(entry.row) for entry in entries])
    chunk = collate_results([entry.value for entry in entries], ids)
    if all(entry.made_of is None for entry in entries):
        return chunk
    return chunk.with_made_of([entry.made_of for entry in entries])
