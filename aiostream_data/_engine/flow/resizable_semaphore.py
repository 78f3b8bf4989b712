"""Semaphore that limits hops (calls on workers) in flight; the limit can change during use."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class ResizableSemaphore:
    """Semaphore whose limit can change during use. Loop thread only.

    Args:
        on_release: Function that is called after each release, to wake other waiters.
    """

    def __init__(self, limit: int, on_release: Callable[[], None] | None = None) -> None:
        self._limit = limit
        self._on_release = on_release
        self._taken = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        """Number of acquired permits."""
        return self._taken

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._wake()

    async def acquire(self) -> None:
        """Wait for a free permit and acquire it."""
        while self._taken >= self._limit:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        self._taken += 1

    def release(self) -> None:
        """Release a permit."""
        self._taken -= 1
        self._wake()
        if self._on_release is not None:
            self._on_release()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
