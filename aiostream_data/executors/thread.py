"""A small pool of daemon threads whose results arrive on the caller's event loop.

The standard library's pool is not used because its threads are joined at interpreter exit: one user
function that never returns would keep the program alive for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Any, NamedTuple

from aiostream_data.executors.base import Outcome, run_timed


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome]
    function: Callable[..., Any]
    args: tuple[Any, ...]


class ThreadExecutor:
    """Up to ``max_threads`` threads, started when first needed; see :class:`.base.Executor`."""

    def __init__(self, max_threads: int, name: str) -> None:
        self.max_threads = max_threads
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._closed = False

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        if self._closed:
            raise RuntimeError(f"executor {self._name} is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._unfinished += 1
        if self._unfinished > len(self._threads) and len(self._threads) < self.max_threads:
            self._start_thread()
        self._jobs.put(_Job(loop, future, function, args))
        return future

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcome = Outcome() if job.future.cancelled() else self._call(job.function, job.args)
            try:
                job.loop.call_soon_threadsafe(self._deliver, job.future, outcome)
            except RuntimeError:
                return  # the loop was closed under us: nobody wants results any more
            # Waiting for the next job must not keep this one's chunks alive.
            del job, outcome

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
        return run_timed(function, args)

    def _deliver(self, future: asyncio.Future[Outcome], outcome: Outcome) -> None:
        self._unfinished -= 1
        if not future.done():
            future.set_result(outcome)

    def close(self, timeout_s: float) -> bool:
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        deadline = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return self.ended

    @property
    def ended(self) -> bool:
        """True when no thread is left."""
        return not any(thread.is_alive() for thread in self._threads)
