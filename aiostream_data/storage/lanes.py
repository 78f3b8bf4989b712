"""Lanes: request limiters for one host or bucket prefix each, shared by all loaders of this process.

A lane limits the requests to one host, or to one bucket and the first part of its keys. Stores limit requests per host,
or per bucket and key prefix. Each loader has its own event loop and thread, so a lane is a plain object protected by a
lock. A request waits for a future on the event loop of its loader. When a request ends, its thread resolves the future
of a waiting request.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

from aiostream_data.storage.aimd import Aimd
from aiostream_data.storage.bytes_ahead import BytesAhead
from aiostream_data.storage.part_size import PartSize
from aiostream_data.storage.process_wide import OfProcess

MAX_LANES: Final = 4096
"""Maximum number of lanes (request limiters) to keep. The least recently used lanes are discarded."""

_Waiter: TypeAlias = "tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]"


class Lane:
    """Request limiter for one host or bucket prefix, and the range size learned from its responses. Thread-safe.

    Attributes:
        aimd: Adaptive limit on concurrent requests.
        parts: Recommended range size.
        in_flight: Number of requests in flight.
    """

    def __init__(self) -> None:
        self.aimd = Aimd()
        self.parts = PartSize()
        self._ahead = BytesAhead()
        self.in_flight = 0
        self._lock = threading.Lock()
        self._line: deque[_Waiter] = deque()

    @property
    def limit(self) -> int:
        """Current limit on concurrent requests."""
        return max(1, int(self.aimd.limit))

    @property
    def nbytes_ahead(self) -> int:
        """Number of bytes to read ahead."""
        return self._ahead.nbytes

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Wait until another request may be sent. The request counts as in flight until the block ends."""
        await self.enter()
        try:
            yield
        finally:
            self.leave()

    async def enter(self) -> None:
        """Wait until another request may be sent. The request counts as in flight until :meth:`leave` is called.

        If the wait is cancelled, the request is not counted.
        """
        if not self.enter_at_once():
            await self._wait_in_line()

    def enter_at_once(self) -> bool:
        """Count a request as in flight and return True. Return False if the request would have to wait."""
        with self._lock:
            if self._line or not self._is_open(time.monotonic()):
                return False
            self._count(1)
            return True

    def leave(self) -> None:
        """Record the end of a request, which no longer counts as in flight."""
        with self._lock:
            self._count(-1)
            is_awaited = bool(self._line)
        if is_awaited:
            self._wake()

    def excess(self, own_waiting: int = 0) -> int:
        """Return the number of requests in flight after which no other request may be sent.

        Args:
            own_waiting: Number of waiting requests of the caller. If others wait, too, one request must give way.
        """
        with self._lock:
            if self.aimd.quiet_until > time.monotonic():
                return self.in_flight
            return max(self.in_flight - self.limit, int(len(self._line) > own_waiting))

    def answered(self, first_byte_s: float, body_s: float = 0.0, nbytes: int = 0) -> None:
        """Record an answer.

        Args:
            first_byte_s: Seconds from the request to the first byte.
            body_s: Seconds from the first byte to the last.
            nbytes: Object bytes in the body, or 0 for responses without object data.
        """
        with self._lock:
            now_s = time.monotonic()
            self.aimd.answered(now_s, first_byte_s + body_s, self.in_flight, nbytes)
            self._ahead.took(now_s, first_byte_s + body_s, nbytes)
            if nbytes:
                self.parts.took(nbytes, first_byte_s, body_s, self.in_flight)
            is_awaited = bool(self._line)
        if is_awaited:
            self._wake()

    def refused(self, retry_after_s: float | None = None) -> None:
        """Record a throttling answer. ``retry_after_s`` is the pause requested by the store, or None."""
        with self._lock:
            self.aimd.refused(time.monotonic(), retry_after_s)

    def _count(self, change: int) -> None:
        self.aimd.passed(time.monotonic(), self.in_flight)
        self.in_flight += change

    def _is_open(self, now_s: float) -> bool:
        return self.in_flight < self.limit and self.aimd.quiet_until <= now_s

    async def _wait_in_line(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                now_s = time.monotonic()  # with two readings, a pause that ends in between would be waited for forever
                if self._is_open(now_s):
                    self._count(1)
                    return
                quiet_s = self.aimd.quiet_until - now_s
                waiter = (loop, loop.create_future())
                self._line.append(waiter)
            try:
                await asyncio.wait_for(waiter[1], quiet_s if quiet_s > 0 else None)
            except TimeoutError:
                continue
            except asyncio.CancelledError:
                if not self._leaves_line(waiter):
                    self._wake()  # this request was woken but is cancelled: wake the next one
                raise
            finally:
                self._leaves_line(waiter)

    def _leaves_line(self, waiter: _Waiter) -> bool:
        """Remove a request from the line. Return False if it was woken, even if its future was not resolved yet."""
        with self._lock:
            if waiter not in self._line:
                return False
            self._line.remove(waiter)
            return True

    def _wake(self) -> None:
        """Wake as many waiting requests as the concurrency limit allows."""
        with self._lock:
            room = self.limit - self.in_flight
            woken = [self._line.popleft() for _ in range(min(room, len(self._line)))]
        for loop, waiter in woken:
            with suppress(RuntimeError):  # the loop of the waiter is closed
                loop.call_soon_threadsafe(_let_go, waiter)


def _let_go(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_lanes = OfProcess(Lane, MAX_LANES)


def lane_of(url: str, endpoint: str) -> Lane:
    """Return the lane (request limiter) of a URL. All loaders of this process share the lane.

    Args:
        endpoint: Custom endpoint of the store, or "" for the default endpoint.
    """
    return _lanes.named(lane_key(url, endpoint))


def request_limits(schemes: Container[str]) -> dict[str, int]:
    """Return the current limits on concurrent requests in this process, by the name of the lane (request limiter).

    Args:
        schemes: URL schemes of the lanes to return.
    """
    found = _lanes.all().items()
    return {name: lane.limit for name, lane in found if name.partition("://")[0] in schemes}


def lane_key(url: str, endpoint: str) -> str:
    """Return the name of a URL's lane: its host, or its bucket and the first part of the object key."""
    host, path = _host_and_path(url, endpoint)
    if host.startswith(("http://", "https://")):
        return host
    first, is_prefix, _ = path.lstrip("/").partition("/")
    return f"{host}/{first if is_prefix else ''}"


def host_key(url: str, endpoint: str) -> str:
    """Return the host or bucket that receives the requests for a URL."""
    return _host_and_path(url, endpoint)[0]


def _host_and_path(url: str, endpoint: str) -> tuple[str, str]:
    """Split a URL into host and path.

    ``urlsplit`` is not used, because every request calls this function and ``urlsplit`` takes longer than signing a
    request.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    place, _, path = rest.partition("/")
    if scheme in ("http", "https"):
        place = place.partition("?")[0].partition("#")[0]
        return f"{scheme}://{place.rpartition('@')[2]}", path
    return f"{scheme}://{endpoint}/{place}", path
