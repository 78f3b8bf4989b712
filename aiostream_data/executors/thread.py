"""A small pool of daemon threads that call functions and deliver the results to the caller's event loop.

The thread pool of the standard library is not used, because the interpreter joins its threads at exit. With the
standard pool, a user function that never returns would keep the program alive forever.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import monotonic
from typing import Any

from aiostream_data.errors import LoaderClosedError, RecordTimeoutError
from aiostream_data.executors.base import Outcome, prepare_worker, run_timed


@dataclass(slots=True, eq=False)
class Job:
    """One submitted function call, and the future for its outcome.

    Attributes:
        limit_s: Time limit of the call in seconds; None for no limit.
        is_first: True if the call starts before all others that wait.
        verdict: List with one item. The caller that removes the item decides the outcome. The thread that finishes the
            call and the timeout of the event loop compete for the item.
    """

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    limit_s: float | None = None
    is_first: bool = False
    timer: asyncio.TimerHandle | None = None
    verdict: list[None] = field(default_factory=lambda: [None])

    def decide(self) -> bool:
        """Decide the outcome of the call. Return True for the first caller, and False for every later caller."""
        try:
            self.verdict.pop()
        except IndexError:
            return False
        return True


class _JobLine:
    """Waiting jobs: those that start before all others, and the others, each in their order. Thread-safe."""

    def __init__(self) -> None:
        self._first: deque[Job] = deque()
        self._others: deque[Job] = deque()

    def add(self, job: Job) -> None:
        (self._first if job.is_first else self._others).append(job)

    def take(self) -> Job | None:
        """Remove and return the first job, or None if another thread has taken the last one."""
        for jobs in (self._first, self._others):
            if jobs:
                with suppress(IndexError):
                    return jobs.popleft()
        return None


class ThreadExecutor:
    """Executor with up to ``max_threads`` threads, started when first needed; see :class:`.base.Executor`.

    Python cannot end a running thread. If a call exceeds its time limit, the pool starts a new thread. The old thread
    ends when the call returns.

    With a limit for concurrent calls, further calls wait. A thread that finishes a call starts the next waiting call
    itself, so the thread does not wait for the event loop. The thread decides this before it delivers the outcome, and
    under a lock: otherwise the event loop could start another call in place of the delivered one at the same time.

    Attributes:
        at_work: Identifiers of the threads that are running a call. Any thread may read ``at_work``.
        before_call: Function that a thread calls before each call; None for none. It must not raise.
    """

    before_call: Callable[[], None] | None = None

    def __init__(self, max_threads: int, name: str) -> None:
        self.max_threads = max_threads
        self._at_once = max_threads
        self._waiting = _JobLine()  # the loop adds; any thread may take the first job
        self._running = 0  # calls that threads run, or that were passed to them
        self._lock = threading.Lock()  # for jobs that leave _waiting, and for _running
        self._name = name
        self._passed = _JobLine()  # jobs for the threads, with one item of the queue each
        self._wakes: SimpleQueue[bool] = SimpleQueue()  # False ends a thread
        self._threads: list[threading.Thread] = []
        self.at_work: set[int] = set()
        self._left_behind: list[threading.Thread] = []
        self._started = 0
        self._unfinished = 0
        self._closed = False

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        return self._begin(None, function, args)

    def submit_first(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        return self._begin(None, function, args, is_first=True)

    def submit_within(self, limit_s: float, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        return self._begin(limit_s, function, args)

    def _begin(
        self, limit_s: float | None, function: Callable[..., Any], args: tuple[Any, ...], *, is_first: bool = False
    ) -> asyncio.Future[Outcome]:
        if self._closed:
            raise LoaderClosedError(f"executor {self._name} is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._unfinished += 1
        self._waiting.add(Job(loop, future, function, args, limit_s, is_first))
        self._start_waiting()
        return future

    @property
    def at_once(self) -> int:
        """Maximum number of calls that run at the same time, at most ``max_threads``. Set it on the event loop."""
        return self._at_once

    @at_once.setter
    def at_once(self, calls: int) -> None:
        with self._lock:
            self._at_once = min(calls, self.max_threads)
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Pass waiting jobs to the threads, up to the limit of concurrent calls."""
        while (job := self._take_to_pass()) is not None:
            self._start_thread_if_needed()
            self._passed.add(job)
            self._wakes.put(True)

    def _take_to_pass(self) -> Job | None:
        """Remove the first waiting job and count it as running. Return None if none waits or the limit is reached."""
        with self._lock:
            # Without a limit, threads take all jobs from the queue.
            if self._running >= self._at_once < self.max_threads:
                return None
            job = self._waiting.take()
            self._running += job is not None
            return job

    def _take_after_a_call(self) -> Job | None:
        """Remove the waiting job that the current thread runs next; if there is none, count its last call as ended."""
        with self._lock:
            job = self._waiting.take() if self._running <= self._at_once else None
            self._running -= job is None
            return job

    def _start_thread_if_needed(self) -> None:
        if self._running > len(self._threads) and len(self._threads) < self.max_threads:
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
        """Release the resources of the current thread before the thread ends."""

    def _work(self) -> None:
        me = threading.get_ident()
        next_job: Job | None = None
        while True:
            if next_job is None:
                if not self._wakes.get():
                    return
                next_job = self._passed.take()
                assert next_job is not None, "each item of the queue has a job"
            job = next_job
            self.at_work.add(me)
            outcome = Outcome() if job.future.cancelled() else self._call(job)
            self.at_work.discard(me)
            if not job.decide():
                return  # the call timed out, and another thread has replaced this one
            next_job = self._take_after_a_call()
            try:
                job.loop.call_soon_threadsafe(self._deliver, job, outcome)
            except RuntimeError:
                return  # the loop was closed, so no caller waits for results
            # Free this job's chunks before waiting for the next job.
            del job, outcome

    def _call(self, job: Job) -> Outcome:
        if self.before_call is not None:
            self.before_call()
        if job.limit_s is None:
            return run_timed(job.function, job.args)
        prepared = run_timed(prepare_worker, (job.function,))
        if prepared.error is not None:
            return prepared
        try:
            job.loop.call_soon_threadsafe(self._count, job, threading.current_thread())
        except RuntimeError:
            return Outcome()  # the loop was closed, so no caller waits
        return run_timed(job.function, job.args)

    def _count(self, job: Job, thread: threading.Thread) -> None:
        if not job.future.done() and job.limit_s is not None:
            job.timer = job.loop.call_later(job.limit_s, self._give_up, job, thread)

    def _give_up(self, job: Job, thread: threading.Thread) -> None:
        if not job.decide():
            return
        with self._lock:
            self._running -= 1
        self._threads.remove(thread)
        self._left_behind = [left for left in self._left_behind if left.is_alive()] + [thread]
        error = RecordTimeoutError(
            f"a call took longer than {job.limit_s:g} s, and its thread keeps running because Python cannot end it. "
            "Set a timeout inside the function, or use executor='process'"
        )
        self._deliver(job, Outcome(None, error, job.limit_s or 0.0))
        if not self._closed:
            self._start_thread_if_needed()
            self._start_waiting()

    def _deliver(self, job: Job, outcome: Outcome) -> None:
        self._unfinished -= 1
        if job.timer is not None:
            job.timer.cancel()
        if not job.future.done():
            job.future.set_result(outcome)

    def close(self, timeout_s: float) -> bool:
        self._closed = True
        for _ in self._threads:
            self._wakes.put(False)
        deadline = monotonic() + timeout_s
        for thread in (*self._threads, *self._left_behind):
            thread.join(max(0.0, deadline - monotonic()))
        return self.ended

    @property
    def unfinished(self) -> int:
        """Number of submitted calls that have no outcome yet."""
        return self._unfinished

    @property
    def threads(self) -> list[threading.Thread]:
        """List of the pool's running threads."""
        return [thread for thread in list(self._threads) if thread.is_alive()]

    @property
    def ended(self) -> bool:
        """True if all threads have ended, including threads with calls that exceeded the time limit."""
        return not any(thread.is_alive() for thread in (*self._threads, *self._left_behind))
