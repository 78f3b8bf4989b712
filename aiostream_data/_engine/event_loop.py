"""Create the event loop of an engine, and close it together with its remaining tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

CLOSE_S = 2.0
"""Time limit in seconds for closing a loader."""

LEFTOVERS_S = 0.5
"""Seconds that background tasks, such as the tasks of a client library, have to end after they are cancelled."""

CLOSED_TLS: Final = "Fatal error on SSL protocol"
CLOSED_HANDLE: Final = "the handler is closed"
"""uvloop reports a write to a closed TLS connection with this message, and an exception whose text ends like this."""


def loop_maker() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the event loop factory of uvloop if uvloop is installed, otherwise the factory of asyncio.

    Call this function on the thread that opens the loader: no other thread can import uvloop while the interpreter
    exits.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop

    def make() -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        loop.set_exception_handler(_report)
        return loop

    return make


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an exception of a callback, unless it comes from a connection that uvloop has closed already.

    If a task that opens a TLS connection is cancelled when the handshake ends, uvloop 0.23 closes the connection and
    then tries to write to it. Nobody uses this connection.
    """
    is_of_closed = context.get("message") == CLOSED_TLS and str(context.get("exception")).endswith(CLOSED_HANDLE)
    if not is_of_closed:
        loop.default_exception_handler(context)


def close_loop(loop: asyncio.AbstractEventLoop, *, of_thread: bool = True) -> None:
    """Cancel the remaining tasks of ``loop``, wait a limited time for them, and close ``loop``.

    Call this function on the thread of the event loop.

    Args:
        of_thread: True if ``loop`` is the thread's current event loop. After closing, the thread has no current event
            loop.
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
