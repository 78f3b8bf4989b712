"""Call the function of ``interleave`` or ``flat_map`` for several elements at once, in order of the elements."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import Protocol

from aiostream_data._engine.calls.cpu_count import at_most_cpus
from aiostream_data._engine.calls.isolation import alone, broke_off
from aiostream_data._engine.calls.row_work import Done, HopPart, RowWork
from aiostream_data._engine.calls.user_code import CallResults, UserFunction, call_rows, name_records
from aiostream_data._engine.calls.work_place import OnThreads, OnWorkers, WorkPlace
from aiostream_data._engine.flow.context import settle
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.stages.interleaving.outer_rows import OuterRows
from aiostream_data.executors.base import Executor
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.plan.operators import Interleave
from aiostream_data.rows.records import Chunk


class InnerCalls:
    """Calls of the user's function on the executor of the plan node.

    Args:
        stage: Stage of an ``Interleave`` node.

    Attributes:
        at_once: Number of concurrent calls. With 1, calls run on the shared threads, many elements in one hop.
    """

    def __init__(self, stage: Stage) -> None:
        node: Interleave = stage.node
        self._stage = weakref.proxy(stage)  # a cycle would keep the user's function until a garbage collection
        workers = stage.context.services.workers
        fixed = node.concurrency if isinstance(node.concurrency, int) else stage.context.services.cpus
        self.at_once = 1 if workers.one_at_a_time or node.executor == "inline" else fixed
        self._is_far = node.executor == "process" and not workers.one_at_a_time
        self._place = self._workers() if self.is_apart else None

    @property
    def is_apart(self) -> bool:
        """True if each hop calls the function for a single element, on workers of this operator."""
        return self._is_far or self.at_once > 1

    async def call(self, user: UserFunction, rows: Chunk) -> CallResults:
        """Call the function for each row, and return the results of all rows before a failure."""
        if self._place is None:
            results: CallResults = await self._stage.hop(call_rows, user, rows)
            return results
        work = RowWork((HopPart("listed" if self._is_far else "inner", user, self._stage.node.noted),))
        outcome = await self._place.submit(work, rows, None)
        if broke_off(outcome):
            outcome = await alone(self._place, work, rows, None, outcome)
        return self._results(settle(self._stage.counters, outcome))

    def _results(self, done: Done) -> CallResults:
        (tally,) = done.tallies
        if done.failure is not None:
            name_records(done.failure, self._stage.context.services.origins)
        lost = [failed.row for failed in tally.failed if failed.kind == "skip"]
        return CallResults(list(done.chunk.elements()), lost, tally.failed, tally.retries, done.failure)

    def _workers(self) -> WorkPlace:
        services, node = self._stage.context.services, self._stage.node
        name = f"asd-{node.label}"
        kind = "process" if self._is_far else "calls"

        def make() -> Executor:
            if not self._is_far:
                return ThreadExecutor(self.at_once, name)
            from aiostream_data.executors.process import ProcessExecutor, idle_nbytes

            nbytes = idle_nbytes(services.budget.limit, self.at_once)
            native_threads = at_most_cpus(services.options.run.native_threads)
            return ProcessExecutor(self.at_once, name, max_nbytes=nbytes, native_threads=native_threads)

        executor = services.workers.at(f"{self._stage.context.place(node)}/{kind}", make)
        return OnWorkers(executor, services.origins.stable) if self._is_far else OnThreads(executor)


class MakesResults(Protocol):
    """Interface of the stage whose function is called ahead."""

    async def results_of(self, rows: Chunk) -> CallResults:
        """Call the user's function for each row."""


class CallsAhead:
    """Keeps up to ``at_once`` calls running, and returns their results in the order of the elements.

    Args:
        rows: Elements of the input.
        group: Task group of the stage. It cancels calls whose results are not needed any more.
    """

    def __init__(self, stage: MakesResults, rows: OuterRows, group: asyncio.TaskGroup, at_once: int) -> None:
        self._stage, self._rows, self._group, self._at_once = stage, rows, group, at_once
        self._running: deque[tuple[Chunk, asyncio.Task[CallResults]]] = deque()

    @property
    def is_next_done(self) -> bool:
        """True if the call for the next element has finished."""
        return bool(self._running) and self._running[0][1].done()

    async def next(self) -> tuple[Chunk, CallResults] | None:
        """Return the next element, as a chunk of one row, and its results; None at the end of the input."""
        while len(self._running) < self._at_once:
            row = await self._rows.take(1, may_wait=not self._running)
            if row is None:
                break
            self._running.append((row, self._group.create_task(self._stage.results_of(row), name="inner call")))
        if not self._running:
            return None
        row, call = self._running.popleft()
        return row, await call
