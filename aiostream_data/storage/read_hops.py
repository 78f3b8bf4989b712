"""Run file reads on worker threads, with several reads per call.

A call on a worker thread (a hop) takes as long as copying a few hundred kilobytes. So reads requested in one step of
the event loop, or while all threads are busy, are distributed evenly over one hop per thread. A worker thread performs
the reads of a hop one after another. Each large read runs in a separate hop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiostream_data.storage.base import RunBlocking
from aiostream_data.storage.blocking_calls import wait_to_end
from aiostream_data.storage.file_reads import FileRead, FileReader

HOPS_AT_ONCE = 4
"""Maximum number of concurrent hops (calls on worker threads): the number of the engine's reader threads."""

READS_PER_HOP = 16

HOP_NBYTES = 1 << 20
"""Maximum bytes per hop (call on a worker thread) with several reads. All reads of a hop wait for the last read."""


@dataclass(slots=True, eq=False)
class _Waiting:
    read: FileRead
    ended: asyncio.Future[None]
    hop: asyncio.Future[list[Exception | None]] | None = None


class ReadHops:
    """Scheduler of file reads on worker threads. Use each instance from one event loop."""

    def __init__(self, run_blocking: RunBlocking, reader: FileReader) -> None:
        self._run_blocking = run_blocking
        self._reader = reader
        self._waiting: deque[_Waiting] = deque()
        self._hops: set[asyncio.Future[list[Exception | None]]] = set()
        self._is_due = False

    async def read(self, read: FileRead) -> None:
        """Perform a read on a worker thread. If the caller is cancelled, wait until the read has ended.

        Raises:
            StorageError, OSError: The read failed.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(read, loop.create_future())
        self._waiting.append(waiting)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._begin_hops)
        try:
            await waiting.ended
        except asyncio.CancelledError:
            if waiting.hop is None:
                self._waiting.remove(waiting)
            else:
                await _end_of(waiting.hop)
            raise

    async def aclose(self) -> None:
        """Wait for all running hops (calls on worker threads)."""
        for hop in tuple(self._hops):
            await _end_of(hop)

    def _begin_hops(self) -> None:
        self._is_due = False
        while self._waiting and len(self._hops) < HOPS_AT_ONCE:
            share = self._share(HOPS_AT_ONCE - len(self._hops))
            reads = [waiting.read for waiting in share]
            hop = asyncio.ensure_future(self._run_blocking(self._reader.read_all, reads))
            self._hops.add(hop)
            for waiting in share:
                waiting.hop = hop
            hop.add_done_callback(partial(self._hop_ended, share))

    def _share(self, threads: int) -> list[_Waiting]:
        """Remove one or more waiting reads from the queue, and return these reads for the next worker thread."""
        most = min(READS_PER_HOP, -(-len(self._waiting) // threads))
        share = [self._waiting.popleft()]
        nbytes = len(share[0].read.buffer)
        while len(share) < most and nbytes + len(self._waiting[0].read.buffer) <= HOP_NBYTES:
            share.append(self._waiting.popleft())
            nbytes += len(share[-1].read.buffer)
        return share

    def _hop_ended(self, share: list[_Waiting], hop: asyncio.Future[list[Exception | None]]) -> None:
        self._hops.discard(hop)
        if hop.cancelled():
            for waiting in share:
                waiting.ended.cancel()
        else:
            failure = hop.exception()
            errors = [failure] * len(share) if failure is not None else hop.result()
            for waiting, error in zip(share, errors, strict=True):
                _settle(waiting.ended, error)
        self._begin_hops()


def _settle(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return  # the caller was cancelled
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


async def _end_of(running: asyncio.Future[Any]) -> None:
    """Wait until the future ``running`` is done, even if the caller is cancelled. Ignore the result of the future."""
    await wait_to_end(asyncio.ensure_future(asyncio.wait([running])))
    if not running.cancelled():
        running.exception()  # mark the exception as retrieved
