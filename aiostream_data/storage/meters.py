"""Meters: objects that enforce the user's rate and connection limits per host or bucket, for all loaders of a process.

Each loader has its own event loop and thread, so a meter is a plain object protected by a lock. Every loader waits
according to its own limits, and its requests count toward the limits of all loaders. Loaders without limits do not
wait, and their requests are not counted.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final, NamedTuple

from aiostream_data.errors import StorageError
from aiostream_data.storage.caps import Caps
from aiostream_data.storage.deadline import paused_deadline
from aiostream_data.storage.lanes import host_key
from aiostream_data.storage.process_wide import OfProcess
from aiostream_data.storage.token_bucket import TokenBucket

MAX_METERS: Final = 1024
"""Maximum number of meters (rate limiters) to keep. The least recently used meters are discarded."""


class _Waiter(NamedTuple):
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]
    most: int


class Meter:
    """Rate and connection limiter for one host or bucket. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.in_flight = 0
        self._requests = TokenBucket()
        self._nbytes = TokenBucket()
        self._clock = clock
        self._lock = threading.Lock()
        self._line: deque[_Waiter] = deque()

    async def enter(self, caps: Caps, nbytes: int) -> None:
        """Wait until a request for ``nbytes`` may be sent.

        The request counts as in flight until :meth:`leave` is called.

        If the wait is cancelled, the request is not counted.
        """
        with self._lock:
            wait_s = self._reserve(caps, nbytes)
        try:
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if caps.connections is not None:
                await self._take_a_place(caps.connections)
        except BaseException:
            with self._lock:
                self._give_back(caps, nbytes)
            raise

    @asynccontextmanager
    async def passage(self, caps: Caps, nbytes: int) -> AsyncIterator[None]:
        """Wait until a request for ``nbytes`` may be sent, then enter the block that sends it.

        If the block raises a StorageError, the error's ``waited_s`` is set to the waiting time. The time limit of
        retries does not include the waiting time.
        """
        asked = self._clock()
        with paused_deadline():
            await self.enter(caps, nbytes)
        waited_s = self._clock() - asked
        try:
            yield
        except StorageError as error:
            error.waited_s = waited_s
            raise
        finally:
            self.leave(caps)

    def leave(self, caps: Caps) -> None:
        """Record the end of a request, which no longer counts as in flight."""
        if caps.connections is not None:
            with self._lock:
                self.in_flight -= 1
            self._wake()

    def _reserve(self, caps: Caps, nbytes: int) -> float:
        now, wait_s = self._clock(), 0.0
        if caps.requests_per_s is not None:
            wait_s = self._requests.reserve(now, 1, caps.requests_per_s)
        if caps.nbytes_per_s is not None and nbytes:
            wait_s = max(wait_s, self._nbytes.reserve(now, nbytes, caps.nbytes_per_s))
        return wait_s

    def _give_back(self, caps: Caps, nbytes: int) -> None:
        if caps.requests_per_s is not None:
            self._requests.give_back(1, caps.requests_per_s)
        if caps.nbytes_per_s is not None and nbytes:
            self._nbytes.give_back(nbytes, caps.nbytes_per_s)

    async def _take_a_place(self, most: int) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.in_flight < most and not self._line:
                self.in_flight += 1
                return
            waiter = _Waiter(loop, loop.create_future(), most)
            self._line.append(waiter)
        self._wake()
        try:
            await waiter.turn  # `_wake` has already counted this request in `in_flight`
        except BaseException:
            self._step_out(waiter)
            raise

    def _step_out(self, waiter: _Waiter) -> None:
        """Remove a waiting request from the queue. If the request was already woken, release its connection slot."""
        with self._lock:
            if waiter in self._line:
                self._line.remove(waiter)
            else:
                self.in_flight -= 1
        self._wake()

    def _wake(self) -> None:
        """Assign free connection slots to the first requests in the queue, and wake these requests."""
        gone: list[_Waiter] = []
        with self._lock:
            while self._line and self.in_flight < self._line[0].most:
                self.in_flight += 1
                gone.append(self._line.popleft())
        for waiter in gone:
            try:
                waiter.loop.call_soon_threadsafe(_let_go, waiter.turn)
            except RuntimeError:  # the loop of the waiter is closed
                self._step_out(waiter)


def _let_go(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


_meters = OfProcess(Meter, MAX_METERS)


def meter_of(url: str, endpoint: str) -> Meter:
    """Return the meter (rate limiter) of a URL's host or bucket. All loaders of this process share the meter.

    Args:
        endpoint: Custom endpoint of the store, or "" for the default endpoint.
    """
    return _meters.named(host_key(url, endpoint))
