"""The executors of one loader: shared by all runs of a place in the plan, or a source's own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from aiostream_data.executors.base import Executor
from aiostream_data.executors.thread import ThreadExecutor


class Workers:
    """Everything that runs user code, and how it ends.

    A stage is run anew in every epoch and for every inner data set. Its executor is not made anew:
    worker processes would have to start each time, and what was left of them would pile up.
    """

    def __init__(self, pool: ThreadExecutor, *, only_pool: bool = False) -> None:
        """Own ``pool``, too; with ``only_pool`` it is the executor of every place, and lends itself for a thread."""
        self._only = pool if only_pool else None
        self._shared: dict[str, Executor] = {"": pool}
        self._leaving: list[ThreadExecutor] = []

    def at(self, key: str, make: Callable[[], Executor]) -> Executor:
        """Return the executor of a place in the plan, made when first asked for."""
        if self._only is not None:
            return self._only
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    @contextmanager
    def thread(self, name: str) -> Iterator[ThreadExecutor]:
        """Lend one thread to the block. At its end the thread does what it was given, and then ends."""
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
        """Return how many hops of a place in the plan have no outcome yet. Safe from any thread."""
        return sum(executor.unfinished for key, executor in self._of_threads() if _place_of(key) == place)

    def threads_by_place(self) -> dict[str, list[int]]:
        """Return the identifiers of threads by the place in the plan that they work for; "" for all others."""
        found: dict[str, list[int]] = {}
        for key, executor in self._of_threads():
            found.setdefault(_place_of(key), []).extend(thread.ident or 0 for thread in executor.threads)
        return found

    def threads(self) -> list[threading.Thread]:
        """Return all threads that are alive. Safe from any thread."""
        return [thread for _, executor in self._of_threads() for thread in executor.threads]

    def _of_threads(self) -> list[tuple[str, ThreadExecutor]]:
        shared = [
            (key, executor) for key, executor in list(self._shared.items()) if isinstance(executor, ThreadExecutor)
        ]
        return [*shared, *(("", executor) for executor in list(self._leaving))]

    def stacks(self, timeout_s: float) -> str:
        """Return what every thread of every worker process does now, as text; "" where there is none."""
        processes = [each for each in list(self._shared.values()) if hasattr(each, "stacks")]
        return "\n".join(filter(None, (each.stacks(timeout_s) for each in processes)))

    def close(self, timeout_s: float) -> bool:
        """Close all executors; False when some are still in a function after ``timeout_s``."""
        deadline = monotonic() + timeout_s
        executors: list[Executor] = [*self._shared.values(), *self._leaving]
        ended = [executor.close(max(0.0, deadline - monotonic())) for executor in executors]
        return all(ended)


def _place_of(key: str) -> str:
    """Return the place that the key of an executor begins with: numbers, and then what it is for."""
    return "/".join(part for part in key.split("/") if part.isdigit())
