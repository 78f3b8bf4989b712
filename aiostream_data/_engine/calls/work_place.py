"""Run row-wise work on threads, in worker processes or in subinterpreters."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from aiostream_data._engine.calls.row_work import HopPart, RowWork
from aiostream_data._engine.calls.user_code import without_origins
from aiostream_data._engine.resume.row_keys import Stable, stable_table
from aiostream_data.executors.base import Executor, Outcome
from aiostream_data.executors.interpreter import InterpreterExecutor
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.rows.records import Chunk


class WorkPlace(Protocol):
    """Interface of an executor of row-wise work.

    Attributes:
        is_far: True if the work runs in another process.
        runs_in: Name of this kind of executor, for reports.
    """

    is_far: ClassVar[bool]
    runs_in: ClassVar[str]

    def submit(self, work: RowWork, chunk: Chunk, timeout_s: float | None) -> Awaitable[Outcome]:
        """Start a hop. The outcome of a successful call contains a :class:`.row_work.Done`."""

    def queues_beyond(self, hops: int) -> bool:
        """Run at most ``hops`` hops at the same time, and queue further hops. Return False if this is impossible."""


@dataclass(frozen=True)
class OnThreads:
    """Executor that runs row-wise work on threads of this process.

    Attributes:
        is_shared: True if other stages use the same threads.
    """

    executor: Executor
    is_shared: bool = False
    is_far: ClassVar[bool] = False
    runs_in: ClassVar[str] = "threads"

    def submit(self, work: RowWork, chunk: Chunk, timeout_s: float | None) -> Awaitable[Outcome]:
        if timeout_s is None:
            return self.executor.submit(work, chunk)
        return self.executor.submit_within(timeout_s, work, chunk)

    def queues_beyond(self, hops: int) -> bool:
        if not isinstance(self.executor, ThreadExecutor):
            return False
        if not self.is_shared:
            self.executor.at_once = hops
        return self.executor.at_once <= hops


class OnWorkers:
    """Executor that runs row-wise work in worker processes.

    This executor sends the work only once, without the references that are valid only in this process.
    """

    is_far: ClassVar[bool] = True
    runs_in: ClassVar[str] = "processes"

    def __init__(self, executor: Executor, stable: Stable) -> None:
        self._executor = executor
        self._stable = stable
        self._sent: dict[RowWork, RowWork] = {}

    def submit(self, work: RowWork, chunk: Chunk, timeout_s: float | None) -> Awaitable[Outcome]:
        sent = self._sent.get(work) or self._sent.setdefault(work, _portable(work))
        wants_names = any(part.user.rng_key is not None for part in work.parts)
        names = (stable_table(self._stable, chunk.ids),) if wants_names else ()
        # Leases cannot be pickled. This process holds the job, and its lease, until the outcome arrives.
        rows = chunk.with_lease(None)
        if timeout_s is None:
            return self._executor.submit(sent, rows, *names)
        return self._executor.submit_within(timeout_s, sent, rows, *names)

    def queues_beyond(self, hops: int) -> bool:
        return True  # the number of worker processes is fixed


class OnInterpreters:
    """Executor that runs user functions in one subinterpreter per thread.

    Code that needs NumPy runs in the main interpreter instead.
    """

    is_far: ClassVar[bool] = False
    runs_in: ClassVar[str] = "interpreters"

    def __init__(self, executor: InterpreterExecutor) -> None:
        self._executor = executor
        self._sent: dict[RowWork, RowWork] = {}

    def submit(self, work: RowWork, chunk: Chunk, timeout_s: float | None) -> Awaitable[Outcome]:
        sent = self._sent.get(work) or self._sent.setdefault(work, self._calling_elsewhere(work))
        return OnThreads(self._executor).submit(sent, chunk, timeout_s)

    def queues_beyond(self, hops: int) -> bool:
        return True  # the number of interpreters is fixed

    def _calling_elsewhere(self, work: RowWork) -> RowWork:
        def elsewhere(part: HopPart) -> HopPart:
            return replace(part, user=replace(part.user, function=self._executor.remote(part.user.function)))

        return RowWork(tuple(part if part.kind == "parse" else elsewhere(part) for part in work.parts))


def _portable(work: RowWork) -> RowWork:
    return RowWork(tuple(replace(part, user=without_origins(part.user)) for part in work.parts))
