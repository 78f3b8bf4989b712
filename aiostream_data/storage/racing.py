"""Await an operation in the caller's task, start a second operation if the first is late, and use the first result.

The first operation nearly always finishes in time. So the first operation runs without its own task, and only a timed
callback is scheduled. If the second operation finishes first, the caller's task is cancelled, as in
:func:`asyncio.timeout`. After that, this module undoes the cancellation of the caller's task. Cancellations by other
code are still raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from aiostream_data.errors import StorageError
from aiostream_data.storage.alarms import Alarms


@dataclass(slots=True, eq=False)
class _Race:
    make_second: Callable[[], Coroutine[Any, Any, None] | None]
    caller: asyncio.Task[Any]
    second: asyncio.Task[None] | None = None
    has_cancelled: bool = False
    is_over: bool = False

    def is_due(self) -> None:
        """Start the second operation."""
        coroutine = self.make_second()
        if coroutine is not None:
            self.second = asyncio.create_task(coroutine)
            self.second.add_done_callback(self._second_ended)

    def _second_ended(self, second: asyncio.Task[None]) -> None:
        if not self.is_over and not second.cancelled() and second.exception() is None:
            self.has_cancelled = True
            self.caller.cancel()


async def first_of_two(
    first: Awaitable[None],
    wait_s: float,
    make_second: Callable[[], Coroutine[Any, Any, None] | None],
    alarms: Alarms,
) -> bool:
    """Run ``first``, and a second operation if ``first`` is late. Return True if the second operation finished first.

    Both operations have ended when this coroutine returns or raises.

    Args:
        wait_s: Seconds to wait for ``first`` before the second operation is started.
        make_second: Function that creates the second operation, or returns None if no second operation should run.
            Called at most once.
        alarms: Scheduler of timed callbacks on the running event loop.

    Raises:
        StorageError: ``first`` failed, and the second operation failed or was not started. The raised error is the
            error of ``first``.
    """
    caller = asyncio.current_task()
    assert caller is not None, "this is awaited by a task"
    before = caller.cancelling()
    race = _Race(make_second, caller)
    alarms.set(wait_s, race)
    try:
        await first
        return False
    except asyncio.CancelledError:
        if race.has_cancelled:
            race.has_cancelled = False
            if caller.uncancel() <= before:
                return True
        raise
    except StorageError:
        race.is_over = True
        if race.second is None or not await _succeeds(race.second):
            raise
        return True
    finally:
        race.is_over = True
        alarms.take_back(race)
        if race.has_cancelled:  # both operations finished: undo the cancellation
            caller.uncancel()
        if race.second is not None:
            await _end(race.second)


async def _succeeds(second: asyncio.Task[None]) -> bool:
    try:
        await second
    except StorageError:
        return False
    return True


async def _end(second: asyncio.Task[None]) -> None:
    """Cancel ``second`` if it is still running. Wait until ``second`` has ended and no longer writes to its buffer."""
    if not second.done():
        second.cancel()
        await asyncio.wait([second])
    if not second.cancelled():
        second.exception()  # mark the exception as retrieved
