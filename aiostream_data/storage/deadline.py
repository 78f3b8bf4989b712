"""A time limit for one call to a store, which covers every attempt, every pause and every byte of an answer.

How this works. When the limit passes, the task of the call is cancelled, as by :func:`asyncio.timeout`, and the block
that is limited swallows the cancellation. One timer of the event loop serves all calls of a store. The limit is paused
while a request waits for the caps of the user, who asked for that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from aiostream_data.storage.alarms import Alarms


class Deadline:
    """Limit the block to ``limit_s`` seconds; used in ``with``, by one task, once.

    Args:
        limit_s: None for no limit.

    Attributes:
        passed: The limit has ended the block, after which the program goes on behind it.
    """

    __slots__ = ("_alarms", "_before", "_left_s", "_outer", "_task", "_was_due", "passed")

    def __init__(self, alarms: Alarms, limit_s: float | None) -> None:
        self._alarms = alarms
        self._left_s = limit_s
        self._task: asyncio.Task[Any] | None = None
        self._outer: Deadline | None = None
        self._was_due = False
        self.passed = False

    def __enter__(self) -> Deadline:
        if self._left_s is not None:
            task = self._task = asyncio.current_task()
            assert task is not None, "this is awaited by a task"
            self._before = task.cancelling()
            self._outer = _of_task.get(task)
            _of_task[task] = self
            self._alarms.set(self._left_s, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        task = self._task
        if task is None:
            return False
        if self._outer is None:
            del _of_task[task]
        else:
            _of_task[task] = self._outer
        if not self._was_due:
            self._alarms.take_back(self)
            return False
        is_ours = task.uncancel() <= self._before
        self.passed = is_ours and isinstance(error, asyncio.CancelledError)
        return self.passed

    def is_due(self) -> None:
        """Cancel the call."""
        assert self._task is not None
        self._was_due = True
        self._task.cancel()

    def pause(self) -> None:
        """Stop the clock until :meth:`resume`."""
        self._left_s = self.left_s
        self._alarms.take_back(self)

    def resume(self) -> None:
        """Let the clock run on."""
        assert self._left_s is not None
        if not self._was_due:
            self._alarms.set(self._left_s, self)

    @property
    def left_s(self) -> float:
        """Seconds until the limit passes."""
        return self._alarms.left_s(self)


_of_task: dict[asyncio.Task[Any], Deadline] = {}
"""The innermost deadline of each task that has one. Tasks of all event loops; each touches its own entry only."""


def _current() -> Deadline | None:
    task = asyncio.current_task()
    return None if task is None else _of_task.get(task)


@contextmanager
def paused_deadline() -> Iterator[None]:
    """Pause the deadline of the calling task in the block, if it has one.

    A task that was started beside the call, such as a second request, cannot pause the deadline of the first.
    """
    deadline = _current()
    if deadline is None:
        yield
        return
    deadline.pause()
    try:
        yield
    finally:
        deadline.resume()


def left_s() -> float | None:
    """Return the seconds that the current call may still take; None without a limit."""
    deadline = _current()
    return None if deadline is None else deadline.left_s
