"""HTTP client that reads one byte range into a buffer with a GET request, over the connection pools of one store.

A request has one of three results. After success, the response body is in the buffer. The exception :class:`Refused`
contains an error status and the server's message. The exception :class:`Unusual` marks a valid response (a redirect, a
chunked body) that an HTTP library must fetch. If the server had closed an idle connection before the request arrived,
the client retries once on a new connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from aiostream_data.storage.caps import Caps
from aiostream_data.storage.counters import Kind, StorageCounters
from aiostream_data.storage.wire.answer_head import AnswerHead
from aiostream_data.storage.wire.chunked import read_chunks
from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.exchange import BodyPlan, BrokenAnswer, ReadPatience, SilentAnswer
from aiostream_data.storage.wire.large_bodies import LargeBodies
from aiostream_data.storage.wire.pool import Pool, Server
from aiostream_data.storage.wire.request import request_head

DETAIL_NBYTES: Final = 16 << 10
"""Maximum number of bytes to read from the body of an error response."""


class RequestTarget(NamedTuple):
    """Server and path of a request.

    Attributes:
        host, port: Address of the server.
        is_tls: True for HTTPS.
        path: Path and query, percent-encoded.
    """

    host: str
    port: int
    is_tls: bool
    path: str

    def __repr__(self) -> str:
        # Omit the path: its query may contain a signature.
        return f"Target(host={self.host!r}, port={self.port!r}, is_tls={self.is_tls!r})"

    @property
    def host_header(self) -> str:
        """Value of the Host header: the host, and the port unless it is the default port."""
        return _host_header(self.host, self.port, self.is_tls)


@lru_cache(maxsize=256)
def _host_header(host: str, port: int, is_tls: bool) -> str:
    host = f"[{host}]" if ":" in host else host
    return host if port == (443 if is_tls else 80) else f"{host}:{port}"


class Took(NamedTuple):
    """Seconds from the request to the first byte of its response, and from the first byte to the last byte."""

    first_byte_s: float
    body_s: float


class Unusual(Exception):
    """Error for a valid response that only an HTTP library can fetch: a redirect, or a chunked or encoded body."""


@dataclass
class Refused(Exception):
    """Error for a response with an error status.

    Attributes:
        status, headers: Status code and headers of the response.
        detail: Beginning of the response body. The body is never printed, because stores quote signed requests in error
            messages.
    """

    status: int
    headers: Mapping[str, str]
    detail: bytes = field(repr=False)

    def __post_init__(self) -> None:
        super().__init__(self.status)


@dataclass(frozen=True, kw_only=True, slots=True)
class WireOptions:
    """Timeouts in seconds and connection limits of a client.

    Attributes:
        connect_s: Timeout for connecting, including the TLS handshake.
        first_byte_s: Timeout for the first byte of a response.
        idle_s: Timeout between two arrivals of data.
        total_s: Timeout for the complete response.
        connections: Maximum number of connections to one server.
        caps: Request and bandwidth limits shared by all loaders of the process.
    """

    connect_s: float = 10.0
    first_byte_s: float = 30.0
    idle_s: float = 30.0
    total_s: float = 600.0
    connections: int = 256
    caps: Caps = field(default_factory=Caps)


@dataclass
class WireClient:
    """HTTP client with one connection pool per server. Use each client on one event loop, and close it after use.

    Attributes:
        options: Timeouts and connection limits.
        make_tls: Function that creates the TLS context for all connections.
        counters: Counters of the store, to which requests, connections and bytes are added.
    """

    options: WireOptions
    make_tls: Callable[[], ssl.SSLContext]
    counters: StorageCounters = field(default_factory=StorageCounters)
    _pools: dict[tuple[str, int, bool], Pool] = field(default_factory=dict)
    _tls: ssl.SSLContext | None = None
    _large_bodies: LargeBodies | None = None

    def __post_init__(self) -> None:
        options = self.options
        self.patience = ReadPatience(options.first_byte_s, options.idle_s, options.total_s)

    async def get(
        self,
        target: RequestTarget,
        headers: Mapping[str, str],
        accept: Callable[[AnswerHead], BodyPlan],
        known: Container[int] = (),
        *,
        kind: Kind = "GET",
    ) -> Took:
        """Send a GET and wait until the body of a 200 or 206 response is in the buffer that ``accept`` returned.

        Args:
            target: Server and path.
            headers: Request headers except Host.
            accept: Checks the head of a 200 or 206 response and returns the destination of its body.
            known: Redirect statuses to raise as :class:`Refused` instead of :class:`Unusual`.
            kind: Kind of request that stores bill: ``GET`` for object data, ``LIST`` for a page of a listing. For a
                ``LIST``, ``accept`` also decides about chunked bodies.

        Returns:
            Durations of the response.

        Raises:
            Refused: The response has an error status.
            Unusual: Only an HTTP library can fetch the response.
            BrokenAnswer: The connection ended or timed out before the response was complete.
            MalformedAnswer: The response is not valid HTTP/1.1.
            OSError, TimeoutError: Connecting failed.
            Exception: ``accept`` raised it.
        """
        return await self._ask(target, kind, headers, accept, known)

    async def head(self, target: RequestTarget, headers: Mapping[str, str]) -> AnswerHead:
        """Send a HEAD request and return the head of its successful response.

        Raises:
            Refused, Unusual, BrokenAnswer, MalformedAnswer, OSError, TimeoutError: See :meth:`get`.
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
        kind: Kind,
        headers: Mapping[str, str],
        accept: Callable[[AnswerHead], BodyPlan],
        known: Container[int] = (),
    ) -> Took:
        request = request_head("HEAD" if kind == "HEAD" else "GET", target.host_header, target.path, headers)
        pool = self.pool_of(target)
        try:
            return await self._ask_over(pool, request, AnswerCheck(accept, known, kind=kind), fresh=False)
        except _StaleConnection:
            return await self._ask_over(pool, request, AnswerCheck(accept, known, kind=kind), fresh=True)

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context, which all connections share."""
        if self._tls is None:
            self._tls = self.make_tls()
        return self._tls

    def close(self) -> None:
        """Close all connections. Idempotent."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        if self._large_bodies is not None:
            self._large_bodies.close()
            self._large_bodies = None

    @property
    def connections(self) -> int:
        """Number of connections that are open or being opened."""
        return sum(pool.connections for pool in self._pools.values())

    async def _ask_over(self, pool: Pool, request: bytes, answer: AnswerCheck, *, fresh: bool) -> Took:
        connection = await pool.take(fresh=fresh)
        was_used = connection.requests > 0
        is_stale = False
        try:
            await connection.get(request, answer.decide, self.patience, bodiless=answer.kind == "HEAD")
        except BrokenAnswer as error:
            if error.fresh and was_used and not fresh and not isinstance(error, SilentAnswer):
                is_stale = True  # the server never received the request
                raise _StaleConnection from error
            raise
        finally:
            if not is_stale:
                is_object = answer.kind == "GET" and not answer.is_error
                self.count(connection.received if is_object else 0, was_used=was_used, kind=answer.kind)
            pool.give_back(connection)
        if answer.is_error:
            raise answer.refusal(connection)
        return Took(connection.first_byte_s, connection.body_s)

    def count(self, received_nbytes: int, *, was_used: bool, kind: Kind = "GET") -> None:
        """Count an ended request.

        Args:
            received_nbytes: Number of received bytes of an object; 0 if the response contained no object data.
            was_used: True if the connection had sent earlier requests.
            kind: Kind of request.
        """
        counters = self.counters
        counters.sent(kind)
        counters.connections_reused += was_used
        counters.connections_opened += not was_used
        counters.received_nbytes += received_nbytes

    def pool_of(self, target: RequestTarget) -> Pool:
        """Return the connection pool of a server."""
        key = (target.host, target.port, target.is_tls)
        pool = self._pools.get(key)
        if pool is None:
            server = Server(target.host, target.port, self.tls() if target.is_tls else None)
            if self._large_bodies is None:
                self._large_bodies = LargeBodies()
            options = self.options
            pool = Pool(server, limit=options.connections, connect_s=options.connect_s, large_bodies=self._large_bodies)
            self._pools[key] = pool
        return pool


class AnswerCheck:
    """Check of the response head to one request.

    Attributes:
        kind: Kind of request.
        is_error: True if the response has an error status, so that its body is an error message.
    """

    __slots__ = ("_accept", "_detail", "_known", "kind")

    def __init__(
        self, accept: Callable[[AnswerHead], BodyPlan], known: Container[int] = (), *, kind: Kind = "GET"
    ) -> None:
        self.kind: Kind = kind
        self._accept = accept
        self._known = known
        self._detail: BodyPlan | None = None

    def decide(self, head: AnswerHead) -> BodyPlan:
        """Return the plan for the body: the plan of ``accept``, or room for an error message.

        Raises:
            Unusual: Only an HTTP library can fetch the response.
            Exception: ``accept`` raised it.
        """
        if head.headers.get("content-encoding", "identity") != "identity":
            raise Unusual
        if head.status in (200, 206):
            if head.framing == "chunked" and self.kind == "GET":
                raise Unusual
            return self._accept(head)
        if 300 <= head.status < 400 and head.status not in self._known:
            raise Unusual
        self._detail = _plan_of_detail(None if self.kind == "HEAD" else head)
        return self._detail

    @property
    def is_error(self) -> bool:
        return self._detail is not None

    def refusal(self, connection: Connection) -> Refused:
        """Return the error for a response with an error status, after the connection has received the response."""
        assert self._detail is not None
        head = connection.answer
        return Refused(head.status, head.headers, _detail(head, bytes(self._detail.into[: connection.received])))


def _plan_of_detail(head: AnswerHead | None) -> BodyPlan:
    """Return a plan for reading the body of an error response. ``head`` is None for a response without a body."""
    if head is None:
        return BodyPlan(memoryview(bytearray()))
    if head.length is None:  # S3 sends its error responses in chunks
        return BodyPlan(memoryview(bytearray(DETAIL_NBYTES)), whole=False, partial=True)
    room = memoryview(bytearray(min(head.length, DETAIL_NBYTES)))
    return BodyPlan(room, whole=head.length <= DETAIL_NBYTES, partial=True)


def _detail(head: AnswerHead, raw: bytes) -> bytes:
    return read_chunks(raw).body if head.framing == "chunked" else raw


class _StaleConnection(Exception):
    """Error for an idle connection that the server closed before the request arrived."""
