"""Run user functions for each element. Consecutive maps and filters run together in one hop (one call on a worker)."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from aiostream_data._engine.calls.cpu_count import at_most_cpus
from aiostream_data._engine.calls.paced_hops import MAX_AUTO_THREADS, HopPiece, PacedHops
from aiostream_data._engine.calls.pacing import Paces
from aiostream_data._engine.calls.parse_rows import parse_rows
from aiostream_data._engine.calls.result_sizes import shared_results
from aiostream_data._engine.calls.row_work import Done, HopPart, RowWork, Tally
from aiostream_data._engine.calls.user_code import UserFunction, name_records
from aiostream_data._engine.calls.work_place import OnInterpreters, OnThreads, OnWorkers, WorkPlace
from aiostream_data._engine.calls.worker_state import StateKeys
from aiostream_data._engine.failures.carried_error import PartlyDone, as_raisable
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.root_cause import root_error
from aiostream_data._engine.flow.stage import CallStage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data.codecs.file_kinds import holds_image
from aiostream_data.executors.base import Executor
from aiostream_data.executors.interpreter import InterpreterExecutor
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.failing.policies import Handling, handling_of
from aiostream_data.metrics.counters import (
    CORE_HAD,
    CORE_WAITED,
    GIL_LOOKS,
    GIL_TAKEN,
    PREEMPTIONS,
    SLOW_ROWS,
    TRANSFER,
)
from aiostream_data.plan.batched import gives_batches
from aiostream_data.plan.columns import WithColumn
from aiostream_data.plan.operators import Call, Filter, Map, ParseRows
from aiostream_data.plan.validate import reaches_processes
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, lineage_of
from aiostream_data.rows.row_ids import RowIds

CROWDED: Final = "crowded"
"""Key of the threads that all inputs of a large mixture share."""

SERIAL_THREADS: Final = 8
"""Number of threads that run the cheap calls of all inputs of a large mixture. Each operator has one of them."""

IN_OTHER_PLACES: Final = ("process", "interpreter")


@dataclass
class RowwiseStage(CallStage):
    """Stage that runs one or several consecutive ``map``, ``filter`` and parse operators with plain functions.

    Attributes:
        fused: Earlier operators that run in the same hop, in order.
    """

    fused: Sequence[Call] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._taken = 0
        self._has_looked = False
        self._seen: dict[str, float] = {}  # part of each growing total that was already counted
        self._counts_failures = [handling_of(each.on_error).kind != "raise" for each in self.nodes]

    @property
    def nodes(self) -> tuple[Call, ...]:
        return (*self.fused, self.node)

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Call = self.node
        services = self.context.services
        self.all_counters = [*(self.context.counters(lower) for lower in self.fused), self.counters]
        for each, counters in zip(self.nodes, self.all_counters, strict=True):
            is_parser = isinstance(each, ParseRows)
            counters.waits_for, counters.work = ("cpu", "parse") if is_parser else ("user", counters.work)
        work = RowWork(tuple(part_of(self.context, each) for each in self.nodes))
        workers = _workers_of(node, services.cpus)
        elsewhere = node.executor in IN_OTHER_PLACES
        functions = [each.function_called for each in self.nodes]
        self._outlet = outlet
        me = weakref.proxy(self)  # a cycle would keep the user's functions and rows until a garbage collection
        self._hops = PacedHops(
            work=work,
            place=self._workers_elsewhere(node.executor, workers) if elsewhere else self._threads(workers),
            serial=None if elsewhere or node.timeout_s is not None else serial_executor(self),
            processes=self._processes if node.executor == "auto" and not services.workers.one_at_a_time else None,
            budget=services.budget,
            take_in=lambda chunk: me._take_in(chunk),
            account=lambda piece, done, transfer_s: me._account(piece, done, transfer_s),
            fixed_workers=workers,
            ordered=node.ordered,
            cpus=services.cpus,
            timeout_s=node.timeout_s,
            hands_all_on=not any(self._counts_failures),
            one_at_a_time=services.workers.one_at_a_time,
            pace=services.features.of(Paces).begun(self.context.place(node), functions, services.cpus),
            shared=shared_results(self.context, self.nodes, workers or 1, lambda: me._outlet.is_awaited()),
        )
        try:
            await self._hops.run(self.held_then(inlets[0]), outlet)
        except BaseExceptionGroup as failures:
            error = root_error(failures)
            if error is not None:
                name_records(error, services.origins)
            raise
        finally:
            del self._outlet  # the next steps refer to this stage

    # -- executors

    def _threads(self, workers: int | None) -> WorkPlace:
        def make() -> Executor:
            return ThreadExecutor(workers or MAX_AUTO_THREADS, f"asd-{self.node.label}")

        place = f"{CROWDED}-{workers}" if self.context.is_crowded else self.context.place(self.node)
        return OnThreads(self.context.services.workers.at(place, make), is_shared=self.context.is_crowded)

    def _processes(self) -> WorkPlace | None:
        """Return the worker processes to which the stage can switch; None if a user function cannot be sent to them."""
        reach = all(reaches_processes(node.function_called) for node in self.nodes)
        return self._workers_elsewhere("process", self.context.services.cpus) if reach else None

    def _workers_elsewhere(self, kind: str, workers: int | None) -> WorkPlace:
        services = self.context.services

        def make() -> Executor:
            name = f"asd-{self.node.label}"
            native_threads = services.options.run.native_threads
            return executor_elsewhere(kind, workers or services.cpus, name, services.budget.limit, native_threads)

        executor = services.workers.at(f"{self.context.place(self.node)}/{kind}", make)
        if isinstance(executor, InterpreterExecutor):
            return OnInterpreters(executor)
        return OnWorkers(executor, services.origins.stable)

    # -- metrics and error limits

    def _take_in(self, chunk: Chunk) -> int:
        if not self._has_looked:
            self._has_looked = True
            self.all_counters[0].work = self.all_counters[0].work or ("decode" if holds_image(chunk.element(0)) else "")
        if self.log is not None:
            return self.log.take_in(lineage_of(chunk))
        first = self._taken
        self._taken += len(chunk)
        return first

    async def _account(self, piece: HopPiece, done: Done, transfer_s: float) -> Done:
        """Record the rows and statistics of a finished hop (one call on a worker).

        Return the result of the hop, truncated if there are more failures than the error limit allows.
        """
        self._count_hop(done, transfer_s)
        for number, tally in enumerate(done.tallies):
            self._count(number, tally)
            if self._counts_failures[number]:
                done = await self._within_budget(piece, done, number, tally)
        rows = len(piece.rows) if done.failure is None else done.rows
        if self.kept is not None:
            self.kept.begin(rows).kept = np.arange(rows) if done.kept is None else done.kept
        if self.log is not None:
            numbers = np.arange(piece.number, piece.number + rows)
            self.give_out(numbers, None if done.kept is None else numbers[done.kept])
        return done

    async def _within_budget(self, piece: HopPiece, done: Done, number: int, tally: Tally) -> Done:
        node, context = self.nodes[number], self.context
        letters = context.services.dead_letters
        try:
            await letters.take(context.place(node), context.nth(node), node, tally.rows_in, tally.failed)
        except PartlyDone as spent:
            row = _number_of(piece.rows, tally.failed[spent.done].ids)
            if done.failure is None or row < done.rows:
                return done.up_to(row, spent.error)
        return done

    def _count(self, number: int, tally: Tally) -> None:
        """Add one operator's statistics to its stage's counters, except counters that the inlet or outlet updates."""
        counters, first, last = self.all_counters[number], self.all_counters[0], self.all_counters[-1]
        counters.workers = self._hops.workers
        counters.busy_s += tally.busy_s
        counters.cpu_s += tally.cpu_s
        counters.retries += tally.retries
        counters.skipped += tally.skipped
        counters.replaced += len(tally.failed) - tally.skipped
        left_out = tally.rows_in - tally.rows - tally.skipped if isinstance(self.nodes[number], Filter) else 0
        counters.dropped += left_out
        self._outlet.dropped += left_out + tally.skipped
        if counters is not first:
            counters.rows_in += tally.rows_in
            counters.input_wait_s = first.input_wait_s
        if counters is not last:
            counters.rows += tally.rows
            counters.chunks += 1
            counters.nbytes += tally.nbytes
            counters.output_wait_s = last.output_wait_s
        if self.fused:  # a fused stage counts the others' work as waiting
            others = sum(other.busy_s for other in self.all_counters) - counters.busy_s
            counters.fused_wait_s = others / max(1, self._hops.workers)

    def _count_hop(self, done: Done, transfer_s: float) -> None:
        """Add the statistics of one hop to the counters of all its stages."""
        pace, probe = self._hops.pace, self._hops.probe
        seen = {SLOW_ROWS: pace.slow_rows_s, GIL_LOOKS: probe.looks, GIL_TAKEN: probe.taken}
        hop = {TRANSFER: transfer_s, PREEMPTIONS: done.preemptions}
        hop |= {CORE_HAD: done.core.had_s, CORE_WAITED: done.core.waited_s}
        for name, value in seen.items():
            hop[name], self._seen[name] = value - self._seen.get(name, 0), value
        for counters in self.all_counters:
            counters.runs_in = self._hops.place.runs_in
            for name, value in hop.items():
                counters.add(name, value)

    # -- recall

    async def recall(self, lineage: Lineage) -> Chunk:
        rows = await self.context.recall(self.node.input, lineage)
        if isinstance(self.node, Filter):
            return rows  # lineage names only rows that the filter kept
        part = part_of(self.context, self.node, handling_of(self.node.on_error).of_given_rows)
        done: Done = await self.hop(RowWork((part,)), rows)
        if done.failure is not None:
            raise as_raisable(done.failure)
        return done.chunk


def _number_of(rows: Chunk, ids: RowIds) -> int:
    """Return the index of the row in ``rows`` that has the given row ids."""
    return next(row for row in range(len(rows)) if rows.ids.row(row).tolist() == ids.tolist())


def part_of(context: RunContext, node: Call, handling: Handling | None = None) -> HopPart:
    """Build the part of a hop that runs a plan node."""
    origins = context.services.origins
    # The key includes this run's epoch: rows from a cache keep the epoch in which they were read.
    key = context.key(node, node.seed, "rng", context.epoch) if node.wants_rng else None
    init = node.init if node.wants_state else None
    user = UserFunction(
        node.function_called,
        origins.describe,
        key,
        origins.stable if node.wants_rng else None,
        handling_of(node.on_error) if handling is None else handling,
        init,
        None if init is None else context.services.features.of(StateKeys).of(context.place(node), init),
        context.services.pause,
        gives_batches(node.input),
        context.services.blocks,
    )
    if isinstance(node, ParseRows):
        decode = partial(parse_rows, node.decoder, origins=origins)
        return HopPart("parse", replace(user, function=decode), node.noted)
    if isinstance(node, Filter):
        return HopPart("filter", user, node.noted)
    if isinstance(node, WithColumn):
        return HopPart("column", user, node.noted, node.column)
    return HopPart("batched" if isinstance(node, Map) and node.batched else "map", user, node.noted)


def _workers_of(node: Call, cpus: int) -> int | None:
    """Return the number of concurrent hops, or None to choose the number from the cost of a call."""
    if node.executor == "inline":
        return 1
    fixed = node.concurrency if isinstance(node.concurrency, int) else None
    return fixed or cpus if node.executor in IN_OTHER_PLACES else fixed


def executor_elsewhere(
    kind: str, workers: int, name: str, memory_limit: int, native_threads: int | None = None
) -> Executor:
    """Return an executor that uses worker processes or subinterpreters."""
    if kind == "interpreter":
        return InterpreterExecutor(workers, name)
    from aiostream_data.executors.process import ProcessExecutor, idle_nbytes

    nbytes = idle_nbytes(memory_limit, workers)
    return ProcessExecutor(workers, name, max_nbytes=nbytes, native_threads=at_most_cpus(native_threads))


def serial_executor(stage: RowwiseStage) -> Executor:
    """Return the executor with a single thread that runs the cheap calls of a stage."""
    context = stage.context
    shared = f"{CROWDED}-{context.numbers[stage.node] % SERIAL_THREADS}"
    place = (shared if context.is_crowded else context.place(stage.node)) + "/serial"
    return stage.context.services.workers.at(place, lambda: ThreadExecutor(1, f"asd-{stage.node.label}"))
