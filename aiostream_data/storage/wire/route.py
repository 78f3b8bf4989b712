"""Decide which client fetches bytes: our own plain GETs, or the library of the store."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias, get_args
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from aiostream_data.errors import PlanError, StorageError, StoreBusyError, StoreTimeoutError, StoreUnreachableError
from aiostream_data.redaction import shown_option
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.caps import take_cap_options
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.lanes import Lane, lane_of
from aiostream_data.storage.meters import meter_of
from aiostream_data.storage.urls import safe_url
from aiostream_data.storage.wire.answer_head import AnswerHead, MalformedAnswer
from aiostream_data.storage.wire.client import Refused, RequestTarget, Unusual, WireClient, WireOptions
from aiostream_data.storage.wire.library_read import LibraryRead
from aiostream_data.storage.wire.plain_read import PlainDialect, read_plain, refused, translating_wire
from aiostream_data.storage.wire.tls import client_context

WAITED_S: Final = 0.001
"""Requests that are let pass later than that have waited; sooner is what asking costs."""

UNUSUAL: Final = 3
"""So many answers in a row that we leave to a library, or refuse, and a server is asked through that."""

Reader: TypeAlias = Literal["auto", "plain", "library"]
"""How bytes are fetched: automatically, by our own plain GETs, or by aiohttp, s3fs and gcsfs."""

_SECONDS: Final = {
    "connect_timeout": "connect_s",
    "first_byte_timeout": "first_byte_s",
    "read_timeout": "idle_s",
    "total_timeout": "total_s",
}


class Route:
    """The plain path of one store, whether it may be taken, and the gates that all requests pass. For one event loop.

    Args:
        reader: What the user chose.
        options: Of the client.
        endpoint: Where the store is, if not where it always is.
        make_tls: Makes the context for servers that speak TLS; the default verifies them by the system's certificates.

    Attributes:
        plain_reads, library_reads: How many ranges were read on either path.
        counters: What was asked of the store.
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
        self._unusual: Counter[tuple[str, int]] = Counter()
        self._proxied: dict[tuple[str, int, bool], bool] = {}

    def leads_to(self, target: RequestTarget) -> bool:
        """Return whether a request to this server goes the plain way."""
        if self.reader == "library" or self._unusual[target.host, target.port] >= UNUSUAL:
            return False
        server = (target.host, target.port, target.is_tls)
        if server not in self._proxied:  # to look takes longer than to sign a request
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
        """Read by a GET of our own; see :func:`.plain_read.read_plain`.

        Returns:
            False where the library has to; from then on always, once a few answers in a row were unusual or malformed.
        """
        async with _Passing(self, shard.url, len(buffer)) as lane:
            try:
                took = await read_plain(self.client, target, headers, dialect, shard, start, buffer)
                self._answered(lane, took.first_byte_s, took.body_s, len(buffer))
            except Unusual:
                self._unusual[target.host, target.port] += 1
                return False
            except StoreUnreachableError as error:
                self._note(target, error)
                raise
        if self._unusual:
            self._unusual.pop((target.host, target.port), None)
        self.plain_reads += 1
        return True

    async def describe(
        self,
        target: RequestTarget,
        headers: Mapping[str, str],
        dialect: PlainDialect,
        url: str,
        no_heads: Container[int],
    ) -> AnswerHead | None:
        """Ask by a HEAD of our own what an object is; None where the library has to.

        Args:
            no_heads: Statuses with which some refuse a HEAD, and serve a GET.

        Raises:
            StorageError: The server cannot be reached, refuses, or does not answer as it should.
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

    def _answered(self, lane: Lane, first_byte_s: float, body_s: float, nbytes: int) -> None:
        """Record how long an answer took that holds bytes of an object."""
        lane.answered(first_byte_s, body_s, nbytes)
        self.counters.first_byte_s += first_byte_s
        self.counters.body_s += body_s

    def _note(self, target: RequestTarget, error: StoreUnreachableError) -> None:
        """Record an answer that is none: where a server stays with that, a library may forgive what we do not."""
        if isinstance(error.__cause__, MalformedAnswer):
            self._unusual[target.host, target.port] += 1

    @asynccontextmanager
    async def by_library(self, url: str, nbytes: int) -> AsyncIterator[LibraryRead]:
        """Read so many bytes by the library inside of the block, and say there when the answer began, and what came.

        Raises:
            StoreTimeoutError: The answer is not complete in time.
        """
        async with _Passing(self, url, nbytes) as lane:
            self.counters.sent("GET")
            reading = LibraryRead()
            with reading.breaking_off():
                async with self._in_time(url):
                    yield reading
            first_byte_s, now = reading.first_byte_s, monotonic()
            if first_byte_s is not None:
                self._answered(lane, first_byte_s, now - reading.sent_at - first_byte_s, nbytes)
        self.library_reads += 1

    @asynccontextmanager
    async def asking(self, url: str) -> AsyncIterator[None]:
        """Ask inside of the block what an object is, by one request."""
        async with _Passing(self, url) as lane:
            began = monotonic()
            async with self._in_time(url):
                yield
            lane.answered(monotonic() - began)

    @asynccontextmanager
    async def listing(self, url: str) -> AsyncIterator[None]:
        """List inside of the block, by one request. It says nothing about how long answers take that hold an object."""
        async with _Passing(self, url), self._in_time(url):
            yield

    @asynccontextmanager
    async def _in_time(self, url: str) -> AsyncIterator[None]:
        """End the block where it takes longer than an answer may in all; of libraries, none knows such a limit."""
        total_s = self.client.options.total_s
        deadline = asyncio.timeout(total_s)
        try:
            async with deadline:
                yield
        except TimeoutError as error:
            if isinstance(error, StorageError) or not deadline.expired():
                raise
            told = f"no complete answer within the time-outs, {total_s:g} s in all"
            raise StoreTimeoutError(safe_url(url), told) from None

    def lane(self, url: str) -> Lane:
        """Return the lane that requests for a URL pass."""
        return lane_of(url, self._endpoint)

    def metered(self, url: str, nbytes: int) -> AbstractAsyncContextManager[None] | None:
        """Return what keeps a request for so many bytes to the user's caps; None without any."""
        return meter_of(url, self._endpoint).passage(self._caps, nbytes) if self._caps else None

    def waited(self, seconds: float) -> None:
        """Record that a request had to wait so long until it might be sent."""
        if seconds >= WAITED_S:
            self.counters.waits += 1
            self.counters.wait_s += seconds


class _Passing:
    """One request's way through the gates: first what the user allows, then what the store bears.

    A class, not a generator: it is made for every request, and that takes a third of the time.
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
    """Take the options of the plain path out of ``storage_options``: ``reader``, caps, and those that only it knows.

    ``connect_timeout``, ``read_timeout`` and ``max_connections`` stay, since libraries know them as well. Without a
    ``first_byte_timeout`` the ``read_timeout`` holds for the first byte, too.

    Raises:
        PlanError: One of them makes no sense.
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
