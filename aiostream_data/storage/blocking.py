"""Run blocking calls on worker threads: waited for to their end even when cancelled, or left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiostream_data.storage.base import RunBlocking


async def run_to_end(run_blocking: RunBlocking, function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function(*args)`` on a worker thread and return its result.

    A thread cannot be interrupted. When this call is cancelled, it still waits until the function has
    returned, so that nothing writes into the caller's buffer afterwards; then it re-raises.
    """
    return await wait_to_end(asyncio.ensure_future(run_blocking(function, *args)))


async def wait_to_end(running: asyncio.Future[Any]) -> Any:
    """Return the result of what cannot be interrupted; when cancelled, wait for it all the same, then re-raise."""
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as request:
            cancelled = request
    if cancelled is not None:
        if not running.cancelled():
            running.exception()  # mark it as seen: the cancellation is what the caller gets
        raise cancelled
    return running.result()


async def run_detached(run_blocking: RunBlocking, function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function(*args)`` on a worker thread and return its result; when cancelled, do not wait for it.

    For calls that may never return and write to nothing of the caller's: their thread is left behind, and their
    result is discarded.
    """
    running = asyncio.ensure_future(run_blocking(function, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(_discard)
        raise


def _discard(running: asyncio.Future[Any]) -> None:
    if not running.cancelled():
        running.exception()  # mark it as retrieved
