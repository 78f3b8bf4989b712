"""Lanes: what all loaders of this process ask of one part of a store passes through one gate.

How this works. A lane is a host, or a bucket with the first part of its keys, as stores limit requests by that. Loaders
have event loops in threads of their own, and so a lane is a plain object under a lock; who has to wait gets a future of
its own loop, and is woken from whichever thread made room.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

from aiostream_data.storage.aimd import Aimd
from aiostream_data.storage.of_process import OfProcess
from aiostream_data.storage.part_size import PartSize

MAX_LANES: Final = 4096
"""Lanes that are remembered; those that were used last."""

_Waiter: TypeAlias = "tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]"


class Lane:
    """One gate, and what is known of the line behind it. Every method may be called from any thread.

    Attributes:
        aimd: How many requests may be on their way.
        parts: How large ranges should be.
        in_flight: Requests on their way.
    """

    def __init__(self) -> None:
        self.aimd = Aimd()
        self.parts = PartSize()
        self.in_flight = 0
        self._lock = threading.Lock()
        self._line: deque[_Waiter] = deque()

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Wait until another request may be sent; it counts until the block is left."""
        await self.enter()
        try:
            yield
        finally:
            self.leave()

    async def enter(self) -> None:
        """Wait until another request may be sent; it counts until :meth:`leave`. Cancelled, it does not."""
        if not self.enter_at_once():
            await self._wait_in_line()

    def enter_at_once(self) -> bool:
        """Return whether another request may be sent now; it counts until :meth:`leave`."""
        with self._lock:
            if self._line or not self._is_open():
                return False
            self.in_flight += 1
            return True

    def leave(self) -> None:
        """Record that the request is over."""
        with self._lock:
            self.in_flight -= 1
            is_awaited = bool(self._line)
        if is_awaited:
            self._wake()

    def answered(self, first_byte_s: float, body_s: float = 0.0, nbytes: int = 0) -> None:
        """Record an answer: how long it took to begin, how long then to come, and its bytes of an object."""
        with self._lock:
            self.aimd.answered(time.monotonic(), first_byte_s, self.in_flight)
            if nbytes:
                self.parts.took(nbytes, first_byte_s, body_s, self.in_flight)
            is_awaited = bool(self._line)
        if is_awaited:
            self._wake()

    def refused(self, retry_after_s: float | None = None) -> None:
        """Record that the store said that it is too much."""
        with self._lock:
            self.aimd.refused(time.monotonic(), retry_after_s)

    def _is_open(self) -> bool:
        return self.in_flight < max(1, int(self.aimd.limit)) and self.aimd.quiet_until <= time.monotonic()

    async def _wait_in_line(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                if self._is_open():
                    self.in_flight += 1
                    return
                quiet_s = self.aimd.quiet_until - time.monotonic()
                waiter = (loop, loop.create_future())
                self._line.append(waiter)
            try:
                await asyncio.wait_for(waiter[1], quiet_s if quiet_s > 0 else None)
            except TimeoutError:
                continue
            except asyncio.CancelledError:
                if waiter[1].done() and not waiter[1].cancelled():
                    self._wake()  # it was this one's turn: the next one's now
                raise
            finally:
                with self._lock, suppress(ValueError):
                    self._line.remove(waiter)

    def _wake(self) -> None:
        """Let as many look again as there is room for."""
        with self._lock:
            room = int(self.aimd.limit) - self.in_flight
            woken = [self._line.popleft() for _ in range(min(room, len(self._line)))]
        for loop, waiter in woken:
            with suppress(RuntimeError):  # the loop was closed: nobody waits there
                loop.call_soon_threadsafe(_let_go, waiter)


def _let_go(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_lanes = OfProcess(Lane, MAX_LANES)


def lane_of(url: str, endpoint: str) -> Lane:
    """Return the lane of a URL; the same for all loaders of this process.

    Args:
        endpoint: Where the store is, if not where it always is.
    """
    return _lanes.named(lane_key(url, endpoint))


def lane_key(url: str, endpoint: str) -> str:
    """Return what a store limits requests by: the host, or the bucket and the first part of the key."""
    host, path = _host_and_path(url, endpoint)
    if host.startswith(("http://", "https://")):
        return host
    first, is_prefix, _ = path.lstrip("/").partition("/")
    return f"{host}/{first if is_prefix else ''}"


def host_key(url: str, endpoint: str) -> str:
    """Return whom the requests for a URL are sent to: the host, or the bucket."""
    return _host_and_path(url, endpoint)[0]


def _host_and_path(url: str, endpoint: str) -> tuple[str, str]:
    """Take a URL apart by hand: this is done for every request, and ``urlsplit`` takes longer than to sign one."""
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    place, _, path = rest.partition("/")
    if scheme in ("http", "https"):
        place = place.partition("?")[0].partition("#")[0]
        return f"{scheme}://{place.rpartition('@')[2]}", path
    return f"{scheme}://{endpoint}/{place}", path
