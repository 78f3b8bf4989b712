"""A small pool of daemon threads whose results arrive on the caller's event loop.

The standard library's pool is not used because its threads are joined at interpreter exit: one user
function that never returns would keep the program alive for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import monotonic
from typing import Any

from aiostream_data.errors import LoaderClosedError, RecordTimeoutError
from aiostream_data.executors.base import Outcome, prepare_worker, run_timed


@dataclass(slots=True, eq=False)
class Job:
    """One call, and where its outcome goes.

    Attributes:
        limit_s: Seconds it may take, or None.
        verdict: What says how the job ended takes the one item out: the thread when the call returns, or
            the loop when its time is over. The other comes too late.
    """

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    limit_s: float | None = None
    timer: asyncio.TimerHandle | None = None
    verdict: list[None] = field(default_factory=lambda: [None])

    def decide(self) -> bool:
        """True for the first who asks."""
        try:
            self.verdict.pop()
        except IndexError:
            return False
        return True


class ThreadExecutor:
    """Up to ``max_threads`` threads, started when first needed; see :class:`.base.Executor`.

    Python cannot end a thread. One whose call was given up is left to itself until the call returns,
    and another takes its place.

    Attributes:
        at_work: Identifiers of the threads that are in a call. May be read from any thread.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self.max_threads = max_threads
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.at_work: set[int] = set()
        self._left_behind: list[threading.Thread] = []
        self._started = 0
        self._unfinished = 0
        self._closed = False

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        return self._begin(None, function, args)

    def submit_within(self, limit_s: float, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        return self._begin(limit_s, function, args)

    def _begin(
        self, limit_s: float | None, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> asyncio.Future[Outcome]:
        if self._closed:
            raise LoaderClosedError(f"executor {self._name} is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._unfinished += 1
        self._start_thread_if_needed()
        self._jobs.put(Job(loop, future, function, args, limit_s))
        return future

    def _start_thread_if_needed(self) -> None:
        if self._unfinished > len(self._threads) and len(self._threads) < self.max_threads:
            thread = threading.Thread(target=self._run_thread, name=f"{self._name}-{self._started}", daemon=True)
            self._started += 1
            self._threads.append(thread)
            thread.start()

    def _run_thread(self) -> None:
        try:
            self._work()
        finally:
            self._thread_ends()

    def _thread_ends(self) -> None:
        """Release what belongs to this thread."""

    def _work(self) -> None:
        me = threading.get_ident()
        while (job := self._jobs.get()) is not None:
            self.at_work.add(me)
            outcome = Outcome() if job.future.cancelled() else self._call(job)
            self.at_work.discard(me)
            if not job.decide():
                return  # given up: another thread has this one's place
            try:
                job.loop.call_soon_threadsafe(self._deliver, job, outcome)
            except RuntimeError:
                return  # the loop was closed under us: nobody wants results any more
            # Waiting for the next job must not keep this one's chunks alive.
            del job, outcome

    def _call(self, job: Job) -> Outcome:
        if job.limit_s is None:
            return run_timed(job.function, job.args)
        prepared = run_timed(prepare_worker, (job.function,))
        if prepared.error is not None:
            return prepared
        try:
            job.loop.call_soon_threadsafe(self._count, job, threading.current_thread())
        except RuntimeError:
            return Outcome()  # the loop was closed: nobody waits
        return run_timed(job.function, job.args)

    def _count(self, job: Job, thread: threading.Thread) -> None:
        if not job.future.done() and job.limit_s is not None:
            job.timer = job.loop.call_later(job.limit_s, self._give_up, job, thread)

    def _give_up(self, job: Job, thread: threading.Thread) -> None:
        if not job.decide():
            return
        self._threads.remove(thread)
        self._left_behind = [left for left in self._left_behind if left.is_alive()] + [thread]
        error = RecordTimeoutError(
            f"a call took longer than {job.limit_s:g} s. Python cannot end its thread, which goes on until the call "
            "returns: give the call a time-out of its own, or use executor='process', whose workers can be ended"
        )
        self._deliver(job, Outcome(None, error, job.limit_s or 0.0))
        if not self._closed:
            self._start_thread_if_needed()

    def _deliver(self, job: Job, outcome: Outcome) -> None:
        self._unfinished -= 1
        if job.timer is not None:
            job.timer.cancel()
        if not job.future.done():
            job.future.set_result(outcome)

    def close(self, timeout_s: float) -> bool:
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        deadline = monotonic() + timeout_s
        for thread in (*self._threads, *self._left_behind):
            thread.join(max(0.0, deadline - monotonic()))
        return self.ended

    @property
    def unfinished(self) -> int:
        """How many hops were begun, or wait for a thread, and have no outcome yet."""
        return self._unfinished

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads that are alive."""
        return [thread for thread in list(self._threads) if thread.is_alive()]

    @property
    def ended(self) -> bool:
        """True when no thread is left, nor one that was left behind in a call."""
        return not any(thread.is_alive() for thread in (*self._threads, *self._left_behind))
