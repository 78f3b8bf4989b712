"""Queue of the bursts that share the connections of one server. The oldest request is sent first.

The consumer waits for the oldest burst. If all bursts shared the connections equally, the oldest burst would end about
as late as the youngest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from aiostream_data.storage.lanes import Lane
from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.object_get import ConnectionLeft, GetEnded, GetSender, ObjectGet
from aiostream_data.storage.wire.pool import Pool


class QueuedBurst(Protocol):
    """Burst with requests in a queue."""

    def give_up(self) -> None:
        """End the burst, because its other requests cannot be sent."""


class BurstQueue:
    """Requests to one server, limited by one lane. For one event loop.

    Args:
        lane: Limiter of the requests. Each connection of the queue counts as one request in flight.
        pool: Connections to the server.
        make_sender: Function that returns the sender of the requests.
        waited: Function that receives the seconds that a request waited for the lane and for a connection.
    """

    def __init__(
        self,
        lane: Lane,
        pool: Pool,
        make_sender: Callable[[ConnectionLeft], GetSender],
        waited: Callable[[float], None],
    ) -> None:
        self.lane = lane
        self._pool = pool
        self._sender = make_sender(self._release)
        self._waited = waited
        self._bursts: set[QueuedBurst] = set()
        self._acquiring: set[asyncio.Task[None]] = set()
        self._opening = 0
        self._is_balancing = False

    def begin(self, burst: QueuedBurst) -> None:
        """Add a burst, before its requests."""
        self._bursts.add(burst)

    def put(self, get: ObjectGet, ended: GetEnded) -> int:
        """Append a request, and return its number. Call :meth:`send` after all requests of a burst."""
        return self._sender.put(get, ended)

    def send(self) -> None:
        """Send requests over idle connections, and begin to open connections for the others."""
        while self._sender.waiting and self.lane.enter_at_once():
            connection = self._pool.take_idle()
            if connection is None:
                self.lane.leave()
                break
            self._use(connection)
        wanted = min(self._sender.waiting, max(1, self._pool.openable))
        for _ in range(wanted - (len(self._acquiring) - self._opening)):
            task = asyncio.ensure_future(self._acquire())
            self._acquiring.add(task)
            task.add_done_callback(self._was_acquired)

    def balance(self) -> None:
        """Adapt the number of connections to the lane. Call it after every result; it runs once for many results."""
        if not self._is_balancing:
            self._is_balancing = True
            asyncio.get_running_loop().call_soon(self._balance)

    def cancel(self, number: int) -> None:
        """Remove a request that has not ended."""
        self._sender.cancel(number)

    def end(self, burst: QueuedBurst) -> set[asyncio.Task[None]]:
        """End a burst without requests. After the last one, cancel all tasks of the queue, and return them."""
        self._bursts.discard(burst)
        if self._bursts:
            return set()
        cancelled, self._acquiring = self._acquiring, set()
        for task in cancelled:
            task.cancel()
        return cancelled

    def close(self) -> None:
        """End all bursts."""
        for burst in [*self._bursts]:
            burst.give_up()

    def _balance(self) -> None:
        self._is_balancing = False
        excess = self.lane.excess(len(self._acquiring) - self._opening)
        self._sender.retire(excess)
        if self._bursts and not (excess and self._sender.connections):
            self.send()

    def _use(self, connection: Connection) -> None:
        if not self._sender.add(connection):
            self._release(connection)

    def _release(self, connection: Connection) -> None:
        self.lane.leave()
        self._pool.give_back(connection)
        self.balance()

    async def _acquire(self) -> None:
        while self._sender.waiting:
            asked = monotonic()
            connection = await self._next_connection()
            self._waited(monotonic() - asked)
            self._use(connection)

    async def _next_connection(self) -> Connection:
        await self.lane.enter()
        self._opening += 1
        try:
            return await self._pool.take()
        except BaseException:
            self.lane.leave()
            raise
        finally:
            self._opening -= 1

    def _was_acquired(self, task: asyncio.Task[None]) -> None:
        self._acquiring.discard(task)
        if not task.cancelled():
            task.exception()  # the ordinary read of the remaining objects raises it
        if not self._acquiring and not self._sender.connections and self._sender.waiting:
            self.close()
