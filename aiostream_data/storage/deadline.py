"""Time limit for one call to a store, including all attempts, pauses and transfers.

When the time limit passes, the task of the call is cancelled, as in :func:`asyncio.timeout`. At the end of the limited
block, the cancellation is suppressed. One event-loop timer serves all calls of a store. The limit is paused while a
request waits for the rate limits set by the user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from aiostream_data.storage.alarms import Alarms


class Deadline:
    """Context manager that limits a block to ``limit_s`` seconds. Use each instance once, in one task.

    Args:
        limit_s: Time limit in seconds, or None for no limit.

    Attributes:
        passed: True if the time limit ended the block. After a time-out, execution continues after the ``with``
            statement.
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
        """Cancel the task, because the time limit has passed."""
        assert self._task is not None
        self._was_due = True
        self._task.cancel()

    def pause(self) -> None:
        """Stop the countdown of the time limit until :meth:`resume` is called."""
        self._left_s = self.left_s
        self._alarms.take_back(self)

    def resume(self) -> None:
        """Continue the countdown of the time limit after :meth:`pause`."""
        assert self._left_s is not None
        if not self._was_due:
            self._alarms.set(self._left_s, self)

    @property
    def left_s(self) -> float:
        """Seconds left until the time limit passes."""
        return self._alarms.left_s(self)


_of_task: dict[asyncio.Task[Any], Deadline] = {}
"""Innermost deadline of each task, for the tasks of all event loops. A task reads and writes only its own entry."""


def _current() -> Deadline | None:
    task = asyncio.current_task()
    return None if task is None else _of_task.get(task)


@contextmanager
def paused_deadline() -> Iterator[None]:
    """Pause the deadline of the calling task, if any, during the block.

    Another task of the same call, such as a hedged request, cannot pause the deadline of the call.
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
    """Return the seconds left until the deadline of the current call, or None without a deadline."""
    deadline = _current()
    return None if deadline is None else deadline.left_s
