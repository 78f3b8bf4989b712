"""Run a user function over every element: on threads, in processes, or awaited on the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.failures import root_error
from aiostream_data._engine.kept_log import KeptLog
from aiostream_data._engine.paced_hops import MAX_AUTO_THREADS, Job, PacedHops
from aiostream_data._engine.position import State
from aiostream_data._engine.stages.base import MaybeUnordered, Stage
from aiostream_data._engine.state_writer import BookWriter
from aiostream_data._engine.user_code import (
    UserFunction,
    kept_rows,
    map_batched,
    map_rows,
    name_records,
    without_origins,
)
from aiostream_data.executors.base import Executor
from aiostream_data.executors.process import ProcessExecutor
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.lineage import Lineage
from aiostream_data.plan.operators import Filter, Map
from aiostream_data.records import Chunk


@dataclass
class MapStage(MaybeUnordered):
    """Running form of ``Map`` for plain functions."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Map = self.node
        self.counters.waits_for = "user"
        user = user_function(self, node.function, node)
        cpus = self.context.services.cpus
        workers = _workers_of(node, cpus)
        executor = self.context.services.workers.at(self.context.place(node), lambda: _executor_for(node, workers))
        job_for = self._for_processes(user) if node.executor == "process" else _same(MapWork(user, node.batched))
        serial = None if node.executor == "process" else serial_executor(self)
        hops = PacedHops(self.counters, executor, serial, job_for, workers, node.ordered, cpus, self.log)
        try:
            await hops.run(self.held_then(inlets[0]), outlet)
        except BaseExceptionGroup as failures:
            self._name_records(failures)
            raise

    async def recall(self, lineage: Lineage) -> Chunk:
        rows = await self.context.recall(self.node.input, lineage)
        user = user_function(self, self.node.function, self.node)
        made: Chunk = await self.hop(MapWork(user, self.node.batched), rows)
        return made

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
        mapped = (map_batched if self.batched else map_rows)(self.user, chunk)
        return mapped if chunk.made_of is None else mapped.with_made_of(chunk.made_of)


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


def serial_executor(stage: Stage) -> Executor:
    """Return the one thread on which a stage's cheap calls are made."""
    place = stage.context.place(stage.node) + "/serial"
    return stage.context.services.workers.at(place, lambda: ThreadExecutor(1, f"asd-{stage.node.label}"))


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

    def __post_init__(self) -> None:
        self._log = KeptLog()

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Filter = self.node
        self.counters.waits_for = "user"
        user = user_function(self, node.predicate)
        place = self.context.place(node)
        executor = self.context.services.workers.at(place, lambda: ThreadExecutor(MAX_AUTO_THREADS, "asd-filter"))

        def job_for(chunk: Chunk) -> Job:
            piece = self._log.begin(len(chunk))

            def work(rows: Chunk) -> Chunk:
                kept = kept_rows(user, rows)
                piece.kept = kept
                return rows if len(kept) == len(rows) else rows.take(kept)

            return work, chunk

        cpus = self.context.services.cpus
        serial = serial_executor(self)
        hops = PacedHops(self.counters, executor, serial, job_for, None, True, cpus, leaves_out=True)
        await hops.run(inlets[0], outlet)

    def at(self, rows: int, book: BookWriter) -> State:
        return self.inputs[0].at(self._log.input_rows(rows), book)

    def forget(self, rows: int) -> None:
        self.inputs[0].forget(self._log.input_rows(rows))
        self._log.forget(rows)

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows
