"""Keep-alive connections to one server: as many as are allowed, the one used last first, none that is too old.

How this works. Whoever wants a connection gets an idle one, or opens one while there are fewer than ``limit``, or waits
in line. Connections are opened a few at a time at first, and later as many as there are already, so that a thousand
requests at the start do not begin with a thousand handshakes: their number doubles with every round trip at most, and
those that come free first serve the others. A connection that the server may be about to close is not used:
servers close idle ones after some time, and a request sent meanwhile is lost.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections import deque
from contextlib import suppress
from typing import Any, Final, NamedTuple

from aiostream_data.storage.wire.connection import Connection

IDLE_S: Final = 15.0
"""A connection idle for longer is not used again: many servers close them after 20 to 75 s."""

OPENING: Final = 8
"""Connections that are opened at the same time in the beginning."""


_HAPPY: Final[dict[str, float]] = {"happy_eyeballs_delay": 0.25} if sys.version_info[:3] >= (3, 13, 1) else {}
"""Try the addresses of a host beside each other, each so many seconds after the last; see RFC 8305. Not on older
Pythons, whose asyncio leaves these tries and their sockets behind when connecting is cancelled."""


class Server(NamedTuple):
    """Where to connect to.

    Attributes:
        host, port: Of the server.
        tls: With what to speak TLS; None for plain text.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None


def may_open(there_are: int) -> int:
    """Return how many connections may be opened at the same time, beside those that there are."""
    return max(OPENING, there_are)


class Pool:
    """Connections to one server, for one event loop.

    Args:
        limit: Most connections at once. May be changed; what is over it is closed when it comes back.
        connect_s: Longest wait for one to be made, the TLS handshake included.
    """

    def __init__(self, server: Server, *, limit: int, connect_s: float) -> None:
        self.server = server
        self.limit = limit
        self._connect_s = connect_s
        self._idle: deque[Connection] = deque()  # used last at the right
        self._lent: set[Connection] = set()
        self._opening = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.opened = 0

    @property
    def connections(self) -> int:
        """Connections that there are, or are being made."""
        return len(self._idle) + len(self._lent) + self._opening

    async def take(self, *, fresh: bool = False) -> Connection:
        """Return a connection that is this caller's until :meth:`give_back`.

        Args:
            fresh: Give a new one, since an idle one has just proved to be closed.

        Raises:
            TimeoutError: It could not be made in time.
            OSError: It could not be made: no such host, refused, no such certificate.
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

    def give_back(self, connection: Connection) -> None:
        """Take a connection back; one that cannot be used any more is closed."""
        self._lent.discard(connection)
        if connection.usable and not self._closed and self.connections < self.limit:
            self._idle.append(connection)
        else:
            connection.abort()
        self._wake()

    def close(self) -> None:
        """Close every connection, those that are lent too. Idempotent."""
        self._closed = True
        for connection in [*self._idle, *self._lent]:
            connection.abort()
        self._idle.clear()
        self._lent.clear()
        while self._line:
            self._wake()

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
                # uvloop tries the addresses of a host one by one, and knows no such argument.
                others: dict[str, Any] = _HAPPY if isinstance(loop, asyncio.BaseEventLoop) else {}
                _, connection = await loop.create_connection(
                    Connection, host, port, ssl=tls, server_hostname=host if tls is not None else None, **others
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
                self._wake()  # it was this one's turn: the next one's now
            with suppress(ValueError):  # it has been passed over already
                self._line.remove(waiter)
            raise

    def _wake(self) -> None:
        while self._line:
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
