"""One first pass over the input of a cache: rows kept as they are read, and sent at the consumer's pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiostream_data.plan.operators import CacheToken
from aiostream_data.rows.records import Chunk


class CachePass:
    """Joins the task that reads, the task that sends, and those who wait for the pass. Loop thread only.

    Reading keeps step with sending, until somebody waits for the pass to be over: it then goes on without
    regard to the consumer, who may be waiting for that very somebody (``zip(cached, cached)``). The rows
    are all to be kept in memory anyway.
    """

    def __init__(self) -> None:
        self.kept: list[Chunk] = []
        self._sent = 0
        self._over = False
        self._failure: Exception | None = None
        self._hurried = False
        self._changed = asyncio.Event()

    async def keep(self, chunk: Chunk) -> None:
        """Add a chunk, and wait until it was sent or somebody waits for the end."""
        self.kept.append(chunk)
        self._notify()
        await self._until(lambda: self._hurried or self._sent == len(self.kept))

    async def to_send(self) -> Chunk | None:
        """Wait for the next chunk to send; None after the last.

        Raises:
            Exception: Reading has failed, and all rows before were sent.
        """
        await self._until(lambda: self._over or self._failure is not None or self._sent < len(self.kept))
        if self._sent < len(self.kept):
            return self.kept[self._sent]
        if self._failure is not None:
            raise self._failure
        return None

    def sent(self) -> None:
        """Mark the chunk as sent."""
        self._sent += 1
        self._notify()

    def fail(self, error: Exception) -> None:
        """End the pass with an error of the reader."""
        self._failure = error
        self._notify()

    def end(self) -> None:
        """End the pass, complete or given up. Idempotent."""
        self._over = True
        self._notify()

    async def wait_over(self) -> None:
        """Wait until everything was read, or the pass was given up."""
        self._hurried = True
        self._notify()
        await self._until(lambda: self._over)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class CachePasses(dict[CacheToken, CachePass]):
    """First passes in progress; one per loader, see :class:`~aiostream_data._engine.flow.features.Features`."""
