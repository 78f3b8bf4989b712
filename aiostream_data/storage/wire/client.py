"""GET one byte range into a buffer, over the pools of one store.

How this works. What a connection says of an answer becomes one of three things here: the bytes, in place; a
:class:`Refused` answer with what the server says of it; or :class:`Unusual`, an answer that is correct, but of a kind
(a redirect, chunks) that is left to a full client. A request that was sent on a connection which the server had just
closed is sent once more on a fresh one: nothing had happened to it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from aiostream_data.storage.caps import Caps
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.wire.answer_head import AnswerHead
from aiostream_data.storage.wire.chunked import read_chunks
from aiostream_data.storage.wire.connection import BodyPlan, BrokenAnswer, Connection, ReadPatience, SilentAnswer
from aiostream_data.storage.wire.pool import Pool, Server
from aiostream_data.storage.wire.request import request_head

DETAIL_NBYTES: Final = 16 << 10
"""Most bytes that are read of what a server says of an error."""


class RequestTarget(NamedTuple):
    """Where a request goes.

    Attributes:
        host, port, is_tls: The server.
        path: Path and query, quoted.
    """

    host: str
    port: int
    is_tls: bool
    path: str

    def __repr__(self) -> str:
        return f"Target(host={self.host!r}, port={self.port!r}, is_tls={self.is_tls!r})"  # the query may sign it

    @property
    def host_header(self) -> str:
        """The host as the server knows itself."""
        return _host_header(self.host, self.port, self.is_tls)


@lru_cache(maxsize=256)
def _host_header(host: str, port: int, is_tls: bool) -> str:
    host = f"[{host}]" if ":" in host else host
    return host if port == (443 if is_tls else 80) else f"{host}:{port}"


class Took(NamedTuple):
    """Seconds that an answer took: from the request until it began, and from then until it was complete."""

    first_byte_s: float
    body_s: float


class Unusual(Exception):
    """The answer is of a kind that a full client has to fetch."""


@dataclass
class Refused(Exception):
    """The server answered with a status that is none of success.

    Attributes:
        status, headers: Of the answer.
        detail: Its body, as far as it was read; not shown, since stores say there what was signed.
    """

    status: int
    headers: Mapping[str, str]
    detail: bytes = field(repr=False)

    def __post_init__(self) -> None:
        super().__init__(self.status)


@dataclass(frozen=True, kw_only=True, slots=True)
class WireOptions:
    """How patient a client is, and how many connections it makes.

    Attributes:
        connect_s: To connect, the TLS handshake included.
        first_byte_s: Until an answer begins.
        idle_s: Between two arrivals.
        total_s: Until an answer is complete.
        connections: Most connections to one server.
        caps: What all loaders of the process may ask for together.
    """

    connect_s: float = 10.0
    first_byte_s: float = 30.0
    idle_s: float = 30.0
    total_s: float = 600.0
    connections: int = 64
    caps: Caps = field(default_factory=Caps)


@dataclass
class WireClient:
    """Pools of connections, one for each server. Used on one event loop; closed by its owner.

    Attributes:
        counters: Of the store: requests, connections and bytes are added.
    """

    options: WireOptions
    make_tls: Callable[[], ssl.SSLContext]
    counters: StorageCounters = field(default_factory=StorageCounters)
    _pools: dict[tuple[str, int, bool], Pool] = field(default_factory=dict)
    _tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        options = self.options
        self._patience = ReadPatience(options.first_byte_s, options.idle_s, options.total_s)

    async def get(
        self,
        target: RequestTarget,
        headers: Mapping[str, str],
        accept: Callable[[AnswerHead], BodyPlan],
        known: Container[int] = (),
    ) -> Took:
        """Send a GET; return when the body is where ``accept`` said for an answer with status 200 or 206.

        Args:
            known: Statuses of redirects that the caller wants to see as :class:`Refused`.

        Returns:
            What it took.

        Raises:
            Refused: Another status, but for redirects that are not known.
            Unusual: The answer is one for a full client.
            BrokenAnswer, MalformedAnswer: It did not arrive as it should.
            OSError, TimeoutError: There is no connection.
            Exception: What ``accept`` raised.
        """
        return await self._ask(target, "GET", headers, accept, known)

    async def head(self, target: RequestTarget, headers: Mapping[str, str]) -> AnswerHead:
        """Send a HEAD, and return what the answer tells of the object; its status is 200.

        Raises:
            Refused, Unusual, BrokenAnswer, MalformedAnswer, OSError, TimeoutError: As :meth:`get`.
        """
        told: list[AnswerHead] = []

        def accept(head: AnswerHead) -> BodyPlan:
            told.append(head)
            return BodyPlan(memoryview(bytearray()))

        await self._ask(target, "HEAD", headers, accept)
        return told[0]

    async def _ask(
        self,
        target: RequestTarget,
        method: str,
        headers: Mapping[str, str],
        accept: Callable[[AnswerHead], BodyPlan],
        known: Container[int] = (),
    ) -> Took:
        request = request_head(method, target.host_header, target.path, headers)
        pool = self._pool_of(target)
        bodiless = method == "HEAD"
        try:
            return await self._ask_over(pool, request, accept, known, fresh=False, bodiless=bodiless)
        except _StaleConnection:
            return await self._ask_over(pool, request, accept, known, fresh=True, bodiless=bodiless)

    def tls(self) -> ssl.SSLContext:
        """Return what servers are verified with; the same for every connection."""
        if self._tls is None:
            self._tls = self.make_tls()
        return self._tls

    def close(self) -> None:
        """Close all connections. Idempotent."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    @property
    def connections(self) -> int:
        """Connections that there are."""
        return sum(pool.connections for pool in self._pools.values())

    async def _ask_over(
        self,
        pool: Pool,
        request: bytes,
        accept: Callable[[AnswerHead], BodyPlan],
        known: Container[int],
        *,
        fresh: bool,
        bodiless: bool,
    ) -> Took:
        connection = await pool.take(fresh=fresh)
        was_used = connection.requests > 0
        is_stale = False
        detail: list[BodyPlan] = []

        def decide(head: AnswerHead) -> BodyPlan:
            if head.headers.get("content-encoding", "identity") != "identity":
                raise Unusual
            if head.status in (200, 206):
                if head.framing == "chunked" and not bodiless:
                    raise Unusual
                return accept(head)
            if 300 <= head.status < 400 and head.status not in known:
                raise Unusual
            detail.append(_plan_of_detail(None if bodiless else head))
            return detail[0]

        try:
            head = await connection.get(request, decide, self._patience, bodiless=bodiless)
        except BrokenAnswer as error:
            if error.fresh and was_used and not fresh and not isinstance(error, SilentAnswer):
                is_stale = True  # the server has not seen it
                raise _StaleConnection from error
            raise
        finally:
            if not is_stale:
                self._count(connection, bodiless=bodiless, was_used=was_used, is_object=not detail)
            pool.give_back(connection)
        if detail:
            raise Refused(head.status, head.headers, _detail(head, bytes(detail[0].into[: connection.received])))
        return Took(connection.first_byte_s, connection.body_s)

    def _count(self, connection: Connection, *, bodiless: bool, was_used: bool, is_object: bool) -> None:
        counters = self.counters
        counters.sent("HEAD" if bodiless else "GET")
        counters.connections_reused += was_used
        counters.connections_opened += not was_used
        if is_object:
            counters.received_nbytes += connection.received

    def _pool_of(self, target: RequestTarget) -> Pool:
        key = (target.host, target.port, target.is_tls)
        pool = self._pools.get(key)
        if pool is None:
            server = Server(target.host, target.port, self.tls() if target.is_tls else None)
            pool = Pool(server, limit=self.options.connections, connect_s=self.options.connect_s)
            self._pools[key] = pool
        return pool


def _plan_of_detail(head: AnswerHead | None) -> BodyPlan:
    """Return what to do with the body of an answer that is none of success; None for one that has no body."""
    if head is None:
        return BodyPlan(memoryview(bytearray()))
    if head.length is None:  # as S3 answers: in chunks
        return BodyPlan(memoryview(bytearray(DETAIL_NBYTES)), whole=False, partial=True)
    room = memoryview(bytearray(min(head.length, DETAIL_NBYTES)))
    return BodyPlan(room, whole=head.length <= DETAIL_NBYTES, partial=True)


def _detail(head: AnswerHead, raw: bytes) -> bytes:
    return read_chunks(raw).body if head.framing == "chunked" else raw


class _StaleConnection(Exception):
    """The server had closed the connection before the request arrived."""
