"""First pass over the input of a cache. The pass caches each row and sends rows at the consumer's speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiostream_data.plan.operators import CacheToken
from aiostream_data.rows.records import Chunk


class CachePass:
    """Synchronizes the task that fills a cache, the task that sends rows, and runs that wait for the end of the pass.

    Not thread-safe: use this class only on the event loop's thread. The reader waits until each chunk has been sent,
    unless another run waits for the end of the pass. When another run waits, the reader no longer waits for the
    consumer. The consumer may itself wait for that other run, as in ``zip(cached, cached)``. The pass always keeps
    all rows in memory.
    """

    def __init__(self) -> None:
        self.kept: list[Chunk] = []
        self._sent = 0
        self._over = False
        self._failure: Exception | None = None
        self._hurried = False
        self._changed = asyncio.Event()

    async def keep(self, chunk: Chunk) -> None:
        """Add a chunk. Wait until the chunk has been sent, or until another run waits for the end of the pass."""
        self.kept.append(chunk)
        self._notify()
        await self._until(lambda: self._hurried or self._sent == len(self.kept))

    async def to_send(self) -> Chunk | None:
        """Wait for the next chunk to send. Return None after the last chunk.

        Raises:
            Exception: The error of the reader, raised after all rows before the error were sent.
        """
        await self._until(lambda: self._over or self._failure is not None or self._sent < len(self.kept))
        if self._sent < len(self.kept):
            return self.kept[self._sent]
        if self._failure is not None:
            raise self._failure
        return None

    def sent(self) -> None:
        """Record that the chunk returned by :meth:`to_send` was sent."""
        self._sent += 1
        self._notify()

    def fail(self, error: Exception) -> None:
        """End the cache pass with an error of the reader."""
        self._failure = error
        self._notify()

    def end(self) -> None:
        """Mark the cache pass as completed or abandoned. Idempotent."""
        self._over = True
        self._notify()

    async def wait_over(self) -> None:
        """Wait until the cache pass is completed or abandoned."""
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
    """First passes in progress of one loader; see :class:`~aiostream_data._engine.flow.features.Features`."""
