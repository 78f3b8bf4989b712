"""Run blocking calls on worker threads. A cancelled caller either waits for the call to end or abandons its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from aiostream_data.storage.base import RunBlocking

T = TypeVar("T")

QUICK_NBYTES: Final = 32 << 10
"""Bodies below this size, such as pages of 100 keys, are parsed in less than a millisecond."""


async def parse_body(
    run_blocking: RunBlocking, parse: Callable[[str, bytes | bytearray], T], url: str, body: bytes | bytearray
) -> T:
    """Return ``parse(url, body)``. A worker thread parses a large body, which takes milliseconds."""
    if len(body) < QUICK_NBYTES:
        return parse(url, body)
    parsed: T = await run_detached(run_blocking, parse, url, body)
    return parsed


async def run_to_end(run_blocking: RunBlocking, function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function(*args)`` on a worker thread and return its result.

    Threads cannot be interrupted. When cancelled, this coroutine waits until the function has returned, then raises
    CancelledError. So the function never writes into the caller's buffer after the coroutine has ended.
    """
    return await wait_to_end(asyncio.ensure_future(run_blocking(function, *args)))


async def wait_to_end(running: asyncio.Future[Any]) -> Any:
    """Return the result of the future ``running``.

    When cancelled, wait until ``running`` is done, then raise CancelledError.
    """
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as request:
            cancelled = request
    if cancelled is not None:
        if not running.cancelled():
            running.exception()  # mark the exception as retrieved: the caller gets the cancellation
        raise cancelled
    return running.result()


async def run_detached(run_blocking: RunBlocking, function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function(*args)`` on a worker thread and return its result. A cancellation does not wait for the function.

    Use this coroutine for functions that may never return and do not write to the caller's memory. After a
    cancellation, the thread keeps running and the function's result is discarded.
    """
    running = asyncio.ensure_future(run_blocking(function, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(_discard)
        raise


def _discard(running: asyncio.Future[Any]) -> None:
    if not running.cancelled():
        running.exception()  # mark the exception as retrieved
