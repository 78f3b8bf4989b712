"""Run a user function over every element: on threads, in processes, or awaited on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiostream_data._engine.context import settle
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.failures import root_error
from aiostream_data._engine.hops import Hops
from aiostream_data._engine.pacing import Pace
from aiostream_data._engine.stages.base import OneToOne, Stage
from aiostream_data._engine.tail import Joined
from aiostream_data._engine.user_code import (
    UserFunction,
    filter_rows,
    map_batched,
    map_rows,
    name_records,
    without_origins,
)
from aiostream_data._engine.window import Window
from aiostream_data.executors.base import Executor, Outcome
from aiostream_data.executors.process import ProcessExecutor
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.plan.operators import Filter, Map
from aiostream_data.records import Chunk

MAX_AUTO_THREADS = 32

Job = tuple[Callable[[Chunk], Chunk], Chunk]


@dataclass
class PacedHops:
    """Cuts chunks into hops of about ten milliseconds and runs them on an executor, several at a time.

    Attributes:
        job_for: Gives the work of a hop, and the rows to call it with.
        fixed_workers: Hops at once, or None to choose from what rows cost.
        may_join: The executor shares this process's memory, so the outlet's tail can work in its hops.
    """

    stage: Stage
    executor: Executor
    job_for: Callable[[Chunk], Job]
    fixed_workers: int | None
    ordered: bool
    cpus: int
    may_join: bool = True
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        self._window = Window(self.fixed_workers or 1)

    async def run(self, inlet: Inlet, outlet: Outlet) -> None:
        async def emit(piece: Chunk, outcome: Outcome) -> None:
            if isinstance(outcome.value, Joined):
                self._learn(len(piece), outcome.value.busy_s, outcome.value.cpu_s)
                outlet.drop(len(piece) - outcome.value.rows)
                await outlet.accept(outcome.value)
                return
            self._learn(len(piece), outcome.busy_s, outcome.cpu_s)
            result = settle(self.stage.counters, outcome)
            outlet.drop(len(piece) - len(result))
            await outlet.send(result)

        def begin(piece: Chunk) -> asyncio.Future[Outcome]:
            work, rows = self.job_for(piece)
            # One hop at a time, in order: nobody else can be pushing into the tail meanwhile.
            if outlet.tail is not None and self.may_join and self.ordered and self._window.limit == 1:
                return self.executor.submit(outlet.tail.join, work, rows)
            return self.executor.submit(work, rows)

        await Hops(begin, emit, self._window, self.ordered).run(self._pieces(inlet))

    async def _pieces(self, inlet: Inlet) -> AsyncIterator[Chunk]:
        async for chunk in inlet:
            start = 0
            while start < len(chunk):
                stop = min(start + self._rows_of_a_hop(len(chunk)), len(chunk))
                yield chunk if stop - start == len(chunk) else chunk.slice(start, stop)
                start = stop

    def _rows_of_a_hop(self, chunk_rows: int) -> int:
        # A chunk is shared out among all workers, so that none idles while another has it all.
        return max(1, min(self.pace.rows, -(-chunk_rows // max(1, self._window.limit))))

    def _learn(self, rows: int, busy_s: float, cpu_s: float) -> None:
        self.pace.observe(rows, busy_s, cpu_s)
        if self.fixed_workers is None:
            self._window.limit = min(self.pace.workers(self.cpus), MAX_AUTO_THREADS)
        self.stage.counters.workers = self._window.limit


@dataclass
class MapStage(OneToOne):
    """Running form of ``Map`` for plain functions."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Map = self.node
        self.counters.waits_for = "user"
        user = user_function(self, node.function, node)
        cpus = self.context.services.cpus
        workers = _workers_of(node, cpus)
        executor = self.context.services.workers.at(self.context.place(node), lambda: _executor_for(node, workers))
        job_for = self._for_processes(user) if node.executor == "process" else _same(MapWork(user, node.batched))
        hops = PacedHops(self, executor, job_for, workers, node.ordered, cpus, may_join=node.executor != "process")
        try:
            await hops.run(inlets[0], outlet)
        except BaseExceptionGroup as failures:
            self._name_records(failures)
            raise

    def _for_processes(self, user: UserFunction) -> Callable[[Chunk], Job]:
        def job_for(chunk: Chunk) -> Job:
            # The lease stays here, where the job is held until its outcome is there.
            return MapWork(without_origins(user, chunk.ids), self.node.batched), chunk.with_lease(None)

        return job_for

    def _name_records(self, failures: BaseExceptionGroup[BaseException]) -> None:
        error = root_error(failures)
        if error is not None:
            name_records(error, self.context.services.origins)


@dataclass(frozen=True)
class MapWork:
    """What a hop of ``map`` does; picklable when its function is."""

    user: UserFunction
    batched: bool

    def __call__(self, chunk: Chunk) -> Chunk:
        return (map_batched if self.batched else map_rows)(self.user, chunk)


def _same(work: Callable[[Chunk], Chunk]) -> Callable[[Chunk], Job]:
    return lambda chunk: (work, chunk)


def _workers_of(node: Map, cpus: int) -> int | None:
    """Return how many calls run at once, or None to choose from what they cost."""
    if node.executor == "inline":
        return 1
    fixed = node.concurrency if isinstance(node.concurrency, int) else None
    return fixed or cpus if node.executor == "process" else fixed


def _executor_for(node: Map, workers: int | None) -> Executor:
    kind = ProcessExecutor if node.executor == "process" else ThreadExecutor
    return kind(workers or MAX_AUTO_THREADS, "asd-map")


def user_function(stage: Stage, function: Callable[..., Any], node: Map | None = None) -> UserFunction:
    """Return a stage's user function, with its way to name records and to seed ``rng``."""
    origins = stage.context.services.origins
    if node is None or not node.wants_rng:
        return UserFunction(function, origins.describe)
    # This run's epoch counts beside the row's: rows out of a cache keep the epoch in which they were read.
    key = stage.context.key(node, node.seed, "rng", stage.context.epoch)
    return UserFunction(function, origins.describe, key, origins.stable)


@dataclass
class FilterStage(Stage):
    """Running form of ``Filter``: in order, on threads."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Filter = self.node
        self.counters.waits_for = "user"
        user = user_function(self, node.predicate)
        place = self.context.place(node)
        executor = self.context.services.workers.at(place, lambda: ThreadExecutor(MAX_AUTO_THREADS, "asd-filter"))
        work = _same(lambda chunk: filter_rows(user, chunk))
        hops = PacedHops(self, executor, work, None, True, self.context.services.cpus)
        await hops.run(inlets[0], outlet)

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows
