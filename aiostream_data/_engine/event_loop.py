"""Make the event loop of an engine, and close it with everything that still runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

CLOSE_S = 2.0
"""Seconds within which a closed loader has stopped everything it can stop."""

LEFTOVERS_S = 0.5
"""Seconds for tasks that nobody awaits, such as those of a client library, to end after their cancellation."""


def loop_maker() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes an event loop: uvloop's where that is installed.

    Called on the thread that opens a loader, since what is imported for it cannot be on another thread while the
    interpreter exits.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


def close_loop(loop: asyncio.AbstractEventLoop, *, of_thread: bool = True) -> None:
    """Cancel what still runs on ``loop``, wait for it a bounded time, and close it. On the loop's own thread.

    Args:
        of_thread: It is the event loop of its thread, which has none afterwards.
    """
    leftovers = asyncio.all_tasks(loop)
    for task in leftovers:
        task.cancel()

    async def finish() -> None:
        if leftovers:
            await asyncio.wait(leftovers, timeout=LEFTOVERS_S)
        await loop.shutdown_asyncgens()
        await asyncio.wait_for(loop.shutdown_default_executor(), CLOSE_S)

    try:
        loop.run_until_complete(finish())
    except TimeoutError:
        pass  # a name look-up of a store that hangs; its thread ends with the look-up
    finally:
        if of_thread:
            asyncio.set_event_loop(None)
        loop.close()
