"""Run several reads at the same time, without waiting for single reads that take much longer than the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Final

from aiostream_data.storage.blocking_calls import wait_to_end

LATE: Final = TimeoutError("the read took much longer than the reads started with it")
"""Outcome of a read that was cancelled because it was late."""

LEAST_PATIENCE_S: Final = 1.0
"""Minimum time in seconds before a read is late."""

PATIENCE: Final = 3.0
"""A read is late after this multiple of the time in which half of the reads ended."""


async def outcomes_of(reads: Mapping[int, Callable[[], Awaitable[None]]]) -> dict[int, Exception | None]:
    """Run all reads, and return the error of each read: None after a success, :data:`LATE` after a cancellation.

    When this coroutine is cancelled, it cancels all reads and waits until they have ended.
    """
    tasks = {asyncio.ensure_future(_outcome(read)): number for number, read in reads.items()}
    try:
        await _until_done_or_late(set(tasks))
    finally:
        if running := [task for task in tasks if not task.done()]:
            for task in running:
                task.cancel()
            await wait_to_end(asyncio.ensure_future(asyncio.wait(running)))  # they may still write to their buffers
    return {number: LATE if task.cancelled() else task.result() for task, number in tasks.items()}


async def _outcome(read: Callable[[], Awaitable[None]]) -> Exception | None:
    try:
        await read()
    except Exception as error:  # noqa: BLE001 - returned
        return error
    return None


def late_after_s(ended_s: Sequence[float], count: int) -> float | None:
    """Return the time in seconds after which reads are late, or None until more than half of the reads have ended.

    Args:
        ended_s: Times in seconds in which reads ended, in ascending order.
        count: Number of reads.
    """
    half = count // 2
    return max(LEAST_PATIENCE_S, PATIENCE * ended_s[half]) if len(ended_s) > half else None


async def _until_done_or_late(pending: set[asyncio.Task[Exception | None]]) -> None:
    """Wait until all tasks have ended, or until the remaining tasks are late. Wakes at most about once per second."""
    began, count = monotonic(), len(pending)
    ended_s: list[float] = []
    for task in pending:
        task.add_done_callback(lambda _: ended_s.append(monotonic() - began))
    wait_s = LEAST_PATIENCE_S
    while pending:
        _, pending = await asyncio.wait(pending, timeout=wait_s)
        late_s = late_after_s(ended_s, count)
        if late_s is not None:
            wait_s = late_s - (monotonic() - began)
            if wait_s <= 0:
                return
