"""Carry out reads on worker threads, several in one hop where many wait.

A hop to a thread and back costs as much as copying some hundred kilobytes. So reads that are asked for in one
step of the event loop, or while all threads are busy, are dealt out evenly: as many hops as there are threads,
each with its share of what waits, one after another. A large read has a hop of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiostream_data.storage.base import RunBlocking
from aiostream_data.storage.blocking import wait_to_end
from aiostream_data.storage.file_reads import FileRead, FileReader

HOPS_AT_ONCE = 4
"""As many as the engine has threads for reading; more would wait for a thread."""

READS_PER_HOP = 16

HOP_NBYTES = 1 << 20
"""A hop takes no further read when it has this much to do: the first of its reads waits for the last."""


@dataclass(slots=True, eq=False)
class _Waiting:
    read: FileRead
    ended: asyncio.Future[None]
    hop: asyncio.Future[list[Exception | None]] | None = None


class ReadHops:
    """Used from one event loop."""

    def __init__(self, run_blocking: RunBlocking, reader: FileReader) -> None:
        self._run_blocking = run_blocking
        self._reader = reader
        self._waiting: deque[_Waiting] = deque()
        self._hops: set[asyncio.Future[list[Exception | None]]] = set()
        self._is_due = False

    async def read(self, read: FileRead) -> None:
        """Read on a worker thread. When cancelled after that has begun, wait until it has ended.

        Raises:
            StorageError, OSError: What the reader raised.
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
        """Wait for the hops that were begun."""
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
        """Take what one of the idle threads is to do now: at least one read."""
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
        return  # cancelled meanwhile
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


async def _end_of(running: asyncio.Future[Any]) -> None:
    """Wait for the end of what cannot be interrupted, however it ends."""
    await wait_to_end(asyncio.ensure_future(asyncio.wait([running])))
    if not running.cancelled():
        running.exception()  # mark it as seen
