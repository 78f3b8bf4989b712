"""Choose the HTTP client for each read: built-in plain GET requests, or the store's HTTP library."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias, get_args
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from aiostream_data._native import HAVE_NATIVE
from aiostream_data.errors import PlanError, StorageError, StoreBusyError, StoreTimeoutError, StoreUnreachableError
from aiostream_data.redaction import shown_option
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.caps import take_cap_options
from aiostream_data.storage.counters import Kind, StorageCounters
from aiostream_data.storage.lanes import Lane, lane_key, lane_of
from aiostream_data.storage.meters import meter_of
from aiostream_data.storage.urls import safe_url
from aiostream_data.storage.wire.answer_head import AnswerHead, MalformedAnswer
from aiostream_data.storage.wire.burst_queue import BurstQueue
from aiostream_data.storage.wire.client import Refused, RequestTarget, Unusual, WireClient, WireOptions
from aiostream_data.storage.wire.library_read import LibraryRead
from aiostream_data.storage.wire.loop_sender import LoopSender
from aiostream_data.storage.wire.object_get import ConnectionLeft, GetSender
from aiostream_data.storage.wire.plain_read import PlainDialect, read_plain, refused, translating_wire
from aiostream_data.storage.wire.pool import Pool
from aiostream_data.storage.wire.thread_sender import SenderThreads, ThreadSender
from aiostream_data.storage.wire.tls import client_context
from aiostream_data.storage.wire.whole_body import WholeBody

WAITED_S: Final = 0.001
"""Delays of at least this many seconds count as waits for a request limit. Shorter delays are overhead."""

UNUSUAL: Final = 3
"""Number of consecutive unusual or malformed responses after which the HTTP library sends all requests of the same kind
to the server."""

Reader: TypeAlias = Literal["auto", "plain", "library"]
"""HTTP client of a store: ``auto``, ``plain`` (built-in GET requests) or ``library`` (aiohttp, s3fs or gcsfs).
"""

_SECONDS: Final = {
    "connect_timeout": "connect_s",
    "first_byte_timeout": "first_byte_s",
    "read_timeout": "idle_s",
    "total_timeout": "total_s",
}


class Route:
    """Client selection and request limits for one store. For one event loop.

    Args:
        reader: HTTP client that the user chose.
        options: Timeouts and connection limits of the plain client.
        endpoint: Endpoint of the store, or an empty string for the default endpoint.
        make_tls: Function that creates the TLS context. By default, the TLS context verifies servers with the system's
            certificates.

    Attributes:
        plain_reads, library_reads: Number of byte ranges read by the plain client and by the HTTP library.
        counters: Counters of all requests to the store.
    """

    def __init__(
        self,
        reader: Reader,
        options: WireOptions,
        endpoint: str = "",
        make_tls: Callable[[], ssl.SSLContext] = client_context,
    ) -> None:
        self.reader = reader
        self.counters = StorageCounters()
        self.client = WireClient(options, make_tls, self.counters)
        self.plain_reads = 0
        self.library_reads = 0
        self._endpoint = endpoint
        self._caps = options.caps
        self._unusual: Counter[tuple[str, int, Kind]] = Counter()
        self._proxied: dict[tuple[str, int, bool], bool] = {}
        self._sender_threads: SenderThreads | None = None
        self._queues: dict[tuple[Lane, Pool], BurstQueue] = {}

    @property
    def is_capped(self) -> bool:
        """True if the user limits the rate of requests or bytes, or the number of connections."""
        return bool(self._caps)

    def leads_to(self, target: RequestTarget, kind: Kind = "GET") -> bool:
        """Return True if the plain client should send requests of this kind to this server."""
        if self.reader == "library" or self._unusual[target.host, target.port, kind] >= UNUSUAL:
            return False
        server = (target.host, target.port, target.is_tls)
        if server not in self._proxied:  # cached: reading the proxy settings is slower than signing a request
            self._proxied[server] = _has_proxy(target)
        return self.reader == "plain" or not self._proxied[server]

    async def read(
        self,
        target: RequestTarget,
        headers: Mapping[str, str],
        dialect: PlainDialect,
        shard: ShardRef,
        start: int,
        buffer: memoryview,
    ) -> bool:
        """Read a byte range with a plain GET request.

        The arguments are the same as those of :func:`.plain_read.read_plain`.

        Returns:
            True if this method read the range; False if the HTTP library must read the range.

        Raises:
            StorageError: The read failed.
        """
        async with _Passing(self, shard.url, len(buffer)) as lane:
            try:
                took = await read_plain(self.client, target, headers, dialect, shard, start, buffer)
                self.answered(lane, took.first_byte_s, took.body_s, len(buffer))
            except Unusual:
                self.note_unusual(target)
                return False
            except StoreUnreachableError as error:
                self._note(target, error)
                raise
        if self._unusual:
            self._unusual.pop((target.host, target.port, "GET"), None)
        self.plain_reads += 1
        return True

    async def fetch(
        self, target: RequestTarget, headers: Mapping[str, str], dialect: PlainDialect, url: str, most_nbytes: int
    ) -> bytes | bytearray | None:
        """Request a page of a listing with a plain GET request, in a block of :meth:`listing`.

        Return the body of the response, or None if the HTTP library must send the request instead.

        Args:
            target: Server, path and query of the page.
            headers: Request headers.
            dialect: Rules for the responses of the store.
            url: URL or pattern of the listing, for error messages.
            most_nbytes: Maximum size of the body.

        Raises:
            StorageError: The server is unreachable, refuses the request, or sends an invalid response.
            OversizedBody: The body is too large.
        """
        body = WholeBody(most_nbytes)
        try:
            with translating_wire(url):
                await self.client.get(target, headers, body.accept, dialect.redirects, kind="LIST")
        except Unusual:
            self.note_unusual(target, "LIST")
            return None
        except Refused as answer:
            raise refused(dialect, url, answer) from None
        except StoreUnreachableError as error:
            self._note(target, error, "LIST")
            raise
        self._unusual.pop((target.host, target.port, "LIST"), None)
        return body.content()

    async def describe(
        self,
        target: RequestTarget,
        headers: Mapping[str, str],
        dialect: PlainDialect,
        url: str,
        no_heads: Container[int],
    ) -> AnswerHead | None:
        """Request the size and version of an object with a HEAD request.

        Return None if the HTTP library must send the request instead.

        Args:
            target: Server and path of the object.
            headers: Request headers.
            dialect: Rules for the responses of the store.
            url: URL of the object, for error messages.
            no_heads: Error statuses of servers that reject HEAD requests but accept GET requests.

        Raises:
            StorageError: The server is unreachable, refuses the request, or sends an invalid response.
        """
        async with self.asking(url):
            try:
                with translating_wire(url):
                    return await self.client.head(target, headers)
            except Unusual:
                return None
            except Refused as answer:
                if answer.status in no_heads:
                    return None
                raise refused(dialect, url, answer) from None
            except StoreUnreachableError as error:
                self._note(target, error)
                raise

    def answered(self, lane: Lane, first_byte_s: float, body_s: float, nbytes: int) -> None:
        """Record the response times of a response that contains object data."""
        lane.answered(first_byte_s, body_s, nbytes)
        self.counters.first_byte_s += first_byte_s
        self.counters.body_s += body_s

    def _note(self, target: RequestTarget, error: StoreUnreachableError, kind: Kind = "GET") -> None:
        """Count a malformed response.

        After several malformed responses, the less strict HTTP library handles the server.
        """
        if isinstance(error.__cause__, MalformedAnswer):
            self.note_unusual(target, kind)

    def note_unusual(self, target: RequestTarget, kind: Kind = "GET") -> None:
        """Count a response to a request of this kind that the plain client cannot handle."""
        self._unusual[target.host, target.port, kind] += 1

    @asynccontextmanager
    async def by_library(self, url: str, nbytes: int) -> AsyncIterator[LibraryRead]:
        """Wrap a read of ``nbytes`` bytes by an HTTP library: apply limits and timeout, and update counters.

        The caller's ``with`` block performs the read and reports its progress to the yielded :class:`LibraryRead`.

        Raises:
            StoreTimeoutError: The response was not complete within the total timeout.
        """
        async with _Passing(self, url, nbytes) as lane:
            self.counters.sent("GET")
            reading = LibraryRead()
            with reading.breaking_off():
                async with self._in_time(url):
                    yield reading
            first_byte_s, now = reading.first_byte_s, monotonic()
            if first_byte_s is not None:
                self.answered(lane, first_byte_s, now - reading.sent_at - first_byte_s, nbytes)
        self.library_reads += 1

    @asynccontextmanager
    async def asking(self, url: str) -> AsyncIterator[None]:
        """Wrap one metadata request for an object: apply the request limits and the total timeout."""
        async with _Passing(self, url) as lane:
            began = monotonic()
            async with self._in_time(url):
                yield
            lane.answered(monotonic() - began)

    @asynccontextmanager
    async def listing(self, url: str) -> AsyncIterator[None]:
        """Wrap one listing request: apply request limits and the total timeout, but do not record its response time."""
        async with _Passing(self, url), self._in_time(url):
            yield

    @asynccontextmanager
    async def _in_time(self, url: str) -> AsyncIterator[None]:
        """Apply the total timeout to the ``with`` block, because the HTTP libraries have no total timeout."""
        total_s = self.client.options.total_s
        deadline = asyncio.timeout(total_s)
        try:
            async with deadline:
                yield
        except TimeoutError as error:
            if isinstance(error, StorageError) or not deadline.expired():
                raise
            told = f"the answer was not complete within {total_s:g} s; raise total_timeout"
            raise StoreTimeoutError(safe_url(url), told) from None

    def lane_key(self, url: str) -> str:
        """Return the name of the lane of a URL."""
        return lane_key(url, self._endpoint)

    def lane(self, url: str) -> Lane:
        """Return the lane (request limiter) of a URL's host."""
        return lane_of(url, self._endpoint)

    def queue(self, lane: Lane, target: RequestTarget) -> BurstQueue:
        """Return the queue of the bursts that are limited by ``lane`` and read from one server."""
        key = lane, self.client.pool_of(target)
        found = self._queues.get(key)
        if found is None:
            found = self._queues[key] = BurstQueue(*key, partial(self._sender, target), self.waited)
        return found

    def _sender(self, target: RequestTarget, left: ConnectionLeft) -> GetSender:
        if target.is_tls or not HAVE_NATIVE:
            return LoopSender(self.client.patience, left)
        if self._sender_threads is None:
            self._sender_threads = SenderThreads(self.client.patience)
        return ThreadSender(self._sender_threads, left)

    def close(self) -> None:
        """Close all connections. Idempotent."""
        for queue in self._queues.values():
            queue.close()
        if self._sender_threads is not None:
            self._sender_threads.close()
            self._sender_threads = None
        self.client.close()

    def metered(self, url: str, nbytes: int) -> AbstractAsyncContextManager[None] | None:
        """Return a context manager that applies the user's limits to a request for ``nbytes``; None without limits."""
        return meter_of(url, self._endpoint).passage(self._caps, nbytes) if self._caps else None

    def waited(self, seconds: float) -> None:
        """Record how long a request waited because of request limits."""
        if seconds >= WAITED_S:
            self.counters.waits += 1
            self.counters.wait_s += seconds


class _Passing:
    """Context manager that delays one request until the user's limits and the request limiter of its host permit it.

    This context manager is a class, because every request uses it and a generator takes three times as long.
    """

    __slots__ = ("_lane", "_metered", "_route")

    def __init__(self, route: Route, url: str, nbytes: int = 0) -> None:
        self._route = route
        self._lane = route.lane(url)
        self._metered = route.metered(url, nbytes)

    async def __aenter__(self) -> Lane:
        asked = monotonic()
        if self._metered is not None:
            await self._metered.__aenter__()
        try:
            if not self._lane.enter_at_once():
                await self._lane.enter()
        except BaseException as error:
            if self._metered is not None:
                await self._metered.__aexit__(type(error), error, error.__traceback__)
            raise
        self._route.waited(monotonic() - asked)
        return self._lane

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, StoreBusyError) and error.is_throttled:
            self._lane.refused(error.retry_after_s)
        self._lane.leave()
        if self._metered is not None:
            await self._metered.__aexit__(kind, error, traceback)


def take_route_options(options: MutableMapping[str, Any]) -> tuple[Reader, WireOptions]:
    """Parse the client options in ``storage_options``, and remove options that the HTTP libraries do not accept.

    ``connect_timeout``, ``read_timeout`` and ``max_connections`` are not removed, because the libraries also accept
    these options. The default of ``first_byte_timeout`` is ``read_timeout``.

    Raises:
        PlanError: A client option has an invalid value.
    """
    reader = options.pop("reader", "auto")
    if reader not in get_args(Reader):
        raise PlanError(f"reader must be one of {', '.join(map(repr, get_args(Reader)))}, got {shown_option(reader)}")
    chosen: dict[str, Any] = {"caps": take_cap_options(options)}
    for name, field in _SECONDS.items():
        if name in options:
            seconds = options.pop(name) if name in ("first_byte_timeout", "total_timeout") else options[name]
            chosen[field] = _positive(name, seconds)
    if "first_byte_s" not in chosen and "idle_s" in chosen:
        chosen["first_byte_s"] = chosen["idle_s"]
    if chosen["caps"].connections is not None:
        chosen["connections"] = chosen["caps"].connections
    return reader, WireOptions(**chosen)


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise PlanError(f"{name} must be a number above 0, got {shown_option(value)}")
    return float(value)


def _has_proxy(target: RequestTarget) -> bool:
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    proxies = getproxies_environment()
    has_one = bool(proxies.get("https" if target.is_tls else "http") or proxies.get("all"))
    return has_one and not proxy_bypass_environment(f"{target.host}:{target.port}", proxies)
