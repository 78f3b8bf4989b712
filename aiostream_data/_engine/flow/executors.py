"""Executors of one loader: executors that all runs of a node share, and single threads for sources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from aiostream_data.executors.base import Executor
from aiostream_data.executors.native_threads import NativeThreads
from aiostream_data.executors.thread import ThreadExecutor


class Workers:
    """All executors of one loader.

    A stage starts again in every epoch and in every run of an inner data set. The executor of a stage is created once
    and reused, because starting worker processes is slow.

    Attributes:
        one_at_a_time: True in debug mode, where functions run on the consumer's thread and stages process single
            elements.
    """

    def __init__(
        self,
        pool: ThreadExecutor,
        *,
        one_at_a_time: bool = False,
        native_threads: NativeThreads | None = None,
    ) -> None:
        """Take ownership of ``pool``.

        With ``one_at_a_time``, ``pool`` replaces every other executor and thread.
        """
        self.one_at_a_time = one_at_a_time
        self._native_threads = native_threads
        self._limit(pool)
        self._only = pool if one_at_a_time else None
        self._shared: dict[str, Executor] = {"": pool}
        self._leaving: list[ThreadExecutor] = []

    def at(self, key: str, make: Callable[[], Executor]) -> Executor:
        """Return the executor with this key, and create the executor on first use.

        The key starts with the stage's position in the plan.
        """
        if self._only is not None:
            return self._only
        if key not in self._shared:
            self._shared[key] = self._limit(make())
        return self._shared[key]

    def _limit(self, executor: Executor) -> Executor:
        """Let the threads of an executor limit the native threads of user functions."""
        if self._native_threads is not None and isinstance(executor, ThreadExecutor):
            executor.before_call = self._native_threads.apply
        return executor

    @contextmanager
    def thread(self, name: str) -> Iterator[ThreadExecutor]:
        """Context manager that creates an executor with one thread.

        After the block, the thread finishes its queued work and then ends.
        """
        if self._only is not None:
            yield self._only
            return
        self._leaving = [thread for thread in self._leaving if not thread.ended]
        thread = ThreadExecutor(1, name)
        self._leaving.append(thread)
        try:
            yield thread
        finally:
            thread.close(0.0)

    def unfinished(self, place: str) -> int:
        """Return the number of unfinished calls on workers for one position in the plan. Safe from any thread."""
        return sum(executor.unfinished for key, executor in self._of_threads() if _place_of(key) == place)

    def threads_by_place(self) -> dict[str, list[int]]:
        """Return the identifiers of all threads, keyed by position in the plan; shared threads have the key ""."""
        found: dict[str, list[int]] = {}
        for key, executor in self._of_threads():
            found.setdefault(_place_of(key), []).extend(thread.ident or 0 for thread in executor.threads)
        return found

    def threads(self) -> list[threading.Thread]:
        """Return all running threads. Safe from any thread."""
        return [thread for _, executor in self._of_threads() for thread in executor.threads]

    def _of_threads(self) -> list[tuple[str, ThreadExecutor]]:
        shared = [
            (key, executor) for key, executor in list(self._shared.items()) if isinstance(executor, ThreadExecutor)
        ]
        return [*shared, *(("", executor) for executor in list(self._leaving))]

    def stacks(self, timeout_s: float) -> str:
        """Return the stacks of all threads of all worker processes as text, or "" without worker processes."""
        processes = [each for each in list(self._shared.values()) if hasattr(each, "stacks")]
        return "\n".join(filter(None, (each.stacks(timeout_s) for each in processes)))

    def close(self, timeout_s: float) -> bool:
        """Close all executors.

        Return False if a function still runs after ``timeout_s`` seconds.
        """
        deadline = monotonic() + timeout_s
        executors: list[Executor] = [*self._shared.values(), *self._leaving]
        ended = [executor.close(max(0.0, deadline - monotonic())) for executor in executors]
        if self._native_threads is not None:
            self._native_threads.end()
        return all(ended)


def _place_of(key: str) -> str:
    """Extract the numeric part of an executor's key, which is the stage's position in the plan."""
    return "/".join(part for part in key.split("/") if part.isdigit())
