"""Run several hops (calls on workers) concurrently, and emit their outcomes in order or as they finish."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiostream_data._engine.flow.channel import ReceiverClosed
from aiostream_data._engine.flow.resizable_semaphore import ResizableSemaphore
from aiostream_data.executors.base import Outcome

Job = TypeVar("Job")


@dataclass(frozen=True, slots=True)
class Hops(Generic[Job]):
    """Run jobs concurrently, within limits for running jobs and for jobs that have not emitted their outcome.

    Attributes:
        begin: Function that starts one job and returns a future of its outcome. The future never raises.
        emit: Coroutine function that receives each finished job and its outcome. An exception in ``emit`` ends the run.
        window: Limit for the number of jobs that are running or have not emitted their outcome.
        ordered: True to emit outcomes in the order of the jobs, False to emit outcomes as the jobs finish.
        running: Limit for the number of unfinished jobs. If None, only ``window`` limits the jobs.
        one_at_a_time: True to start each job only after the outcome of the previous job was emitted.
    """

    begin: Callable[[Job], asyncio.Future[Outcome]]
    emit: Callable[[Job, Outcome], Awaitable[None]]
    window: ResizableSemaphore
    ordered: bool
    running: ResizableSemaphore | None = None
    one_at_a_time: bool = False

    async def run(self, jobs: AsyncIterator[Job]) -> None:
        """Start every job, and emit the outcome of every job. Close ``jobs`` if it is an async generator."""
        if self.one_at_a_time:
            await self._run_in_turn(jobs)
            return
        line: _Line[Job] = _Line(self.ordered)
        async with asyncio.TaskGroup() as group:
            admission = group.create_task(self._admit(jobs, line))
            await self._emit_all(line, admission)

    async def _run_in_turn(self, jobs: AsyncIterator[Job]) -> None:
        try:
            async for job in jobs:
                await self.emit(job, await self.begin(job))
        finally:
            if isinstance(jobs, AsyncGenerator):
                await jobs.aclose()

    async def _admit(self, jobs: AsyncIterator[Job], line: _Line[Job]) -> None:
        try:
            async for job in jobs:
                await self.window.acquire()
                line.add(job, await self._begun(job))
                del job  # free the rows of this job during the wait for the next
        except Exception as error:  # noqa: BLE001 - raised behind the jobs that were begun
            line.close(error)
        finally:
            line.close()
            if isinstance(jobs, AsyncGenerator):  # closed here, because the garbage collector may run after the loop
                await jobs.aclose()

    async def _begun(self, job: Job) -> asyncio.Future[Outcome]:
        running = self.running
        if running is None:
            return self.begin(job)
        await running.acquire()
        future = self.begin(job)
        future.add_done_callback(lambda _: running.release())
        return future

    async def _emit_all(self, line: _Line[Job], admission: asyncio.Task[None]) -> None:
        """Emit every outcome.

        If outcomes are emitted as jobs finish, raise a failure only after the outcomes of all started jobs are emitted.
        """
        failure: Exception | None = None
        while (entry := await line.next()) is not None:
            job, future = entry
            try:
                await self.emit(job, future.result())
            except ReceiverClosed:
                raise
            except Exception as error:
                if self.ordered:
                    raise
                failure = failure or error
                admission.cancel()
            self.window.release()
            del entry, job, future  # free the rows of this job during the wait for the next
        if failure is not None or line.failure is not None:
            raise failure or line.failure  # type: ignore[misc]


class _Line(Generic[Job]):
    """Queue of started jobs; returns each job when it has finished.

    Attributes:
        failure: Error that ended the stream of jobs, if any.
    """

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        self._begun: deque[tuple[Job, asyncio.Future[Outcome]]] = deque()
        self._finished: deque[tuple[Job, asyncio.Future[Outcome]]] = deque()
        self._unfinished = 0
        self._closed = False
        self.failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def add(self, job: Job, future: asyncio.Future[Outcome]) -> None:
        entry = (job, future)
        if self._ordered:
            self._begun.append(entry)
        self._unfinished += 1
        future.add_done_callback(lambda _: self._done(entry))

    def close(self, failure: Exception | None = None) -> None:
        """End the stream of jobs, normally or with an error. Calls after the first one have no effect."""
        if not self._closed:
            self._closed, self.failure = True, failure
        self._wake()

    async def next(self) -> tuple[Job, asyncio.Future[Outcome]] | None:
        """Wait for the next finished job and return it; return None after the last job."""
        while True:
            if self._ordered and self._begun and self._begun[0][1].done():
                return self._begun.popleft()
            if not self._ordered and self._finished:
                return self._finished.popleft()
            if self._closed and not self._begun and self._unfinished == 0:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _done(self, entry: tuple[Job, asyncio.Future[Outcome]]) -> None:
        self._unfinished -= 1
        if not self._ordered and not entry[1].cancelled():
            self._finished.append(entry)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
