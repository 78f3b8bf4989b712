"""Await an operation in the caller's task, start a second one if it is late, and use the first result.

Nearly always the first operation finishes in time. So it runs without a task of its own, and only an alarm is set. If
the second operation finishes first, it cancels the caller's task, as :func:`asyncio.timeout` does. This module then
undoes that cancellation. Cancellations from outside are still raised.
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
    """Run ``first``, and a second operation if ``first`` is late. Return True if the second finished first.

    Both operations have ended when this coroutine returns or raises.

    Args:
        wait_s: Seconds after which the second operation starts.
        make_second: Creates the second operation, or returns None to start none. Called at most once.
        alarms: Alarms of the running event loop.

    Raises:
        StorageError: ``first`` failed, and the second operation failed or was not started. The error is that of
            ``first``.
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
    """Cancel ``second`` if it is not done. Wait until it has ended and no longer writes to its buffer."""
    if not second.done():
        second.cancel()
        await asyncio.wait([second])
    if not second.cancelled():
        second.exception()  # mark the exception as retrieved
