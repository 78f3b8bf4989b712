"""Await something in the caller's own task, and begin the same once more where it is late: the first to come counts.

How this works. Nearly always the first one comes in time, and so it costs no task, only an alarm: it is awaited as it
is. If the second one is there sooner, it cancels the caller, as :func:`asyncio.timeout` does, and that is taken back
here: whoever cancels the caller from outside is not mistaken for it.
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
        """Begin the second one."""
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
    """Return whether the second one was sooner. Whichever was not has ended when this returns or raises.

    Args:
        wait_s: When the second one begins, if the first one is not there.
        make_second: Returns what to await beside the first; None where there must not be a second. Called at most once.
        alarms: Of this event loop.

    Raises:
        StorageError: Both failed, or the first one did alone; the first one's error.
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
        if race.has_cancelled:  # and the first one came all the same
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
    """Cancel what is not done, and wait until it writes nowhere any more."""
    if not second.done():
        second.cancel()
        await asyncio.wait([second])
    if not second.cancelled():
        second.exception()  # somebody has heard of it, or need not
