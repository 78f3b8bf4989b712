"""Create the event loop of an engine, and close it together with its remaining tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

CLOSE_S = 2.0
"""Time limit in seconds for closing a loader."""

LEFTOVERS_S = 0.5
"""Seconds that background tasks, such as those of a client library, have to end after their cancellation."""


def loop_maker() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the event loop factory: uvloop's if it is installed, else asyncio's.

    Call this on the thread that opens the loader: another thread cannot import uvloop while the interpreter exits.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


def close_loop(loop: asyncio.AbstractEventLoop, *, of_thread: bool = True) -> None:
    """Cancel the remaining tasks of ``loop``, wait for them a bounded time, and close ``loop``.

    Call this on the loop's own thread.

    Args:
        of_thread: True if ``loop`` is set as the thread's event loop; the thread then has none afterwards.
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
        pass  # a store's DNS lookup hangs; its thread ends with the lookup
    finally:
        if of_thread:
            asyncio.set_event_loop(None)
        loop.close()
