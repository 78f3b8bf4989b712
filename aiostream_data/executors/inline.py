"""Executor that calls functions directly in the thread of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiostream_data.executors.base import Outcome, run_timed
from aiostream_data.executors.thread import ThreadExecutor


class InlineExecutor(ThreadExecutor):
    """Executor without its own threads; see :class:`.base.Executor`.

    The futures returned by this executor are already done.

    The executor ignores time limits, because a user may run a function in a debugger.

    Attributes:
        calling: True while a function runs.
    """

    def __init__(self) -> None:
        super().__init__(1, "asd-here")
        self.calling = False

    def _begin(
        self, limit_s: float | None, function: Callable[..., Any], args: tuple[Any, ...], *, is_first: bool = False
    ) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        with outside_of_loops():  # the function may run an event loop, as it may on a thread
            outcome = run_timed(self._call_here, (function, args))
        future.set_result(outcome)
        return future

    def _call_here(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self.calling = True
        try:
            return function(*args)
        finally:
            self.calling = False


@contextmanager
def outside_of_loops() -> Iterator[None]:
    """Allow the ``with`` block to run a second event loop in this thread, for example in a notebook."""
    running = asyncio._get_running_loop()
    if running is None:
        yield
        return
    swap_task: Any = getattr(asyncio.tasks, "_swap_current_task", None)  # from Python 3.12 on
    task = None if swap_task is None else swap_task(running, None)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
        if swap_task is not None:
            swap_task(running, task)
