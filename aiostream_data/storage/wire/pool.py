"""Pool of keep-alive connections to one server.

A request takes the most recently used idle connection. If no connection is idle, the request opens a new connection or,
at ``limit`` connections, waits in a queue. In each round trip, the pool at most doubles the number of its connections.
A thousand initial requests therefore do not start a thousand handshakes. The pool closes connections that were idle too
long. Otherwise, the server could close a connection while a request is on its way.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.large_bodies import LargeBodies

IDLE_S: Final = 15.0
"""Maximum idle time of a pooled connection in seconds. Many servers close idle connections after 20 to 75 s."""

OPENING: Final = 8
"""Initial limit for the number of connections that open at the same time."""


_HAPPY: Final[dict[str, float]] = {"happy_eyeballs_delay": 0.25} if sys.version_info[:3] >= (3, 13, 1) else {}
"""Options for connecting to several addresses of a host in parallel, with 0.25 s between attempts (RFC 8305).

Python versions before 3.13.1 do not use these options, because cancelling the connection attempt leaks sockets.
"""


class Server(NamedTuple):
    """Address of a server.

    Attributes:
        host, port: Host name and port number.
        tls: TLS context; None for a connection without TLS.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None


def may_open(there_are: int) -> int:
    """Return the maximum number of simultaneous connection attempts, given the number of open connections."""
    return max(OPENING, there_are)


class Pool:
    """Pool of connections to one server, for one event loop.

    Args:
        server: Address of the server.
        limit: Maximum number of connections in the pool. The limit can change later; the pool closes returned
            connections above the limit.
        connect_s: Timeout for connecting in seconds, including the TLS handshake.
        large_bodies: Receiver of large bodies, or None to receive them on the event loop.
    """

    def __init__(
        self, server: Server, *, limit: int, connect_s: float, large_bodies: LargeBodies | None = None
    ) -> None:
        self.server = server
        self.limit = limit
        self._connect_s = connect_s
        self._large_bodies = large_bodies if server.tls is None else None  # TLS must decrypt the bytes of the socket
        self._idle: deque[Connection] = deque()  # most recently used at the right
        self._lent: set[Connection] = set()
        self._opening = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.opened = 0

    @property
    def connections(self) -> int:
        """Number of connections that are open or are being opened."""
        return len(self._idle) + len(self._lent) + self._opening

    async def take(self, *, fresh: bool = False) -> Connection:
        """Return a connection for exclusive use until the caller passes it to :meth:`give_back`.

        Args:
            fresh: If True, open a new connection instead of using an idle connection.

        Raises:
            TimeoutError: Connecting exceeded ``connect_s``.
            OSError: The pool is closed, or connecting failed (unknown host, refused connection, invalid certificate).
        """
        while True:
            if self._closed:
                raise ConnectionAbortedError("the pool was closed")
            if not fresh and (connection := self._best_idle()) is not None:
                self._lent.add(connection)
                return connection
            if self._may_open and self.connections < self.limit:
                return await self._open()
            if fresh and self._idle and self._may_open:
                self._idle.popleft().abort()
                continue
            await self._wait()

    def take_idle(self) -> Connection | None:
        """Return an idle connection for exclusive use, or None if there is none or other requests wait for one."""
        if self._closed or self._line:
            return None
        connection = self._best_idle()
        if connection is not None:
            self._lent.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool after use. The pool closes connections that cannot be reused."""
        self._lent.discard(connection)
        if connection.usable and not self._closed and self.connections < self.limit:
            self._idle.append(connection)
            if not self._line:
                connection.acknowledge()
        else:
            connection.abort()
        self._wake()

    def close(self) -> None:
        """Close all connections, including those in use. Idempotent."""
        self._closed = True
        for connection in [*self._idle, *self._lent]:
            connection.abort()
        self._idle.clear()
        self._lent.clear()
        while self._line:
            self._wake()

    @property
    def openable(self) -> int:
        """Number of connections that may be opened now."""
        there_are = len(self._idle) + len(self._lent)
        return max(0, min(may_open(there_are), self.limit - there_are) - self._opening)

    @property
    def _may_open(self) -> bool:
        return self._opening < may_open(self.connections - self._opening)

    def _best_idle(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle and now - self._idle[0].idle_since > IDLE_S:
            self._idle.popleft().abort()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        host, port, tls = self.server
        self._opening += 1
        if self._may_open and self.connections < self.limit:
            self._wake()
        try:
            async with asyncio.timeout(self._connect_s):
                # uvloop connects to one address at a time and does not accept this argument.
                others: dict[str, Any] = _HAPPY if isinstance(loop, asyncio.BaseEventLoop) else {}
                _, connection = await loop.create_connection(
                    partial(Connection, self._large_bodies),
                    host,
                    port,
                    ssl=tls,
                    server_hostname=host if tls is not None else None,
                    **others,
                )
        finally:
            self._opening -= 1
            self._wake()
        if self._closed:
            connection.abort()
            raise ConnectionAbortedError("the pool was closed")
        self.opened += 1
        self._lent.add(connection)
        return connection

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._line.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # pass the wake-up on to the next waiter
            with suppress(ValueError):  # already removed from the queue
                self._line.remove(waiter)
            raise

    def _wake(self) -> None:
        while self._line:
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
