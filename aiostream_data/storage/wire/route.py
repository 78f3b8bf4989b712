"""Decide which client fetches bytes: our own plain GETs, or the library of the store."""

from __future__ import annotations

import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeAlias, get_args
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from aiostream_data.errors import PlanError, StoreBusyError
from aiostream_data.records import ShardRef
from aiostream_data.storage.lanes import Lane, lane_of
from aiostream_data.storage.wire.answer_head import AnswerHead
from aiostream_data.storage.wire.client import Refused, Target, Unusual, WireClient, WireOptions
from aiostream_data.storage.wire.plain_read import Dialect, read_plain, translating_wire
from aiostream_data.storage.wire.tls import client_context

UNUSUAL: Final = 3
"""So many answers in a row that only a library understands, and a server is asked through that."""

Reader: TypeAlias = Literal["auto", "plain", "library"]
"""Who fetches bytes: whoever can, our own plain GETs, or aiohttp, s3fs and gcsfs."""

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
    """

    def __init__(
        self,
        reader: Reader,
        options: WireOptions,
        endpoint: str = "",
        make_tls: Callable[[], ssl.SSLContext] = client_context,
    ) -> None:
        self.reader = reader
        self.client = WireClient(options, make_tls)
        self.plain_reads = 0
        self.library_reads = 0
        self._endpoint = endpoint
        self._unusual: Counter[tuple[str, int]] = Counter()
        self._proxied: dict[tuple[str, int, bool], bool] = {}

    def leads_to(self, target: Target) -> bool:
        """Return whether a request to this server goes the plain way."""
        if self.reader == "library" or self._unusual[target.host, target.port] >= UNUSUAL:
            return False
        server = (target.host, target.port, target.is_tls)
        if server not in self._proxied:  # to look takes longer than to sign a request
            self._proxied[server] = _has_proxy(target)
        return self.reader == "plain" or not self._proxied[server]

    async def read(
        self,
        target: Target,
        headers: Mapping[str, str],
        dialect: Dialect,
        shard: ShardRef,
        start: int,
        buffer: memoryview,
    ) -> bool:
        """Read by a GET of our own; see :func:`.plain_read.read_plain`.

        Returns:
            False where the library has to; always, once the server has answered in an unusual way a few times in a row.
        """
        async with self._passing(shard.url) as lane:
            try:
                lane.answered(await read_plain(self.client, target, headers, dialect, shard, start, buffer))
            except Unusual:
                self._unusual[target.host, target.port] += 1
                return False
        self._unusual.pop((target.host, target.port), None)
        self.plain_reads += 1
        return True

    async def describe(self, target: Target, headers: Mapping[str, str], url: str) -> AnswerHead | None:
        """Ask by a HEAD of our own what an object is; None where the library has to.

        Raises:
            StorageError: The server cannot be reached, or does not answer as it should.
        """
        async with self._passing(url):
            with translating_wire(url):
                try:
                    return await self.client.head(target, headers)
                except (Unusual, Refused):  # some refuse HEAD, and serve a GET
                    return None

    @asynccontextmanager
    async def by_library(self, url: str) -> AsyncIterator[None]:
        """Read by the library inside of the block."""
        async with self._passing(url):
            yield
        self.library_reads += 1

    @asynccontextmanager
    async def _passing(self, url: str) -> AsyncIterator[Lane]:
        lane = lane_of(url, self._endpoint)
        async with lane.passage():
            try:
                yield lane
            except StoreBusyError as error:
                if error.is_throttled:
                    lane.refused(error.retry_after_s)
                raise


def take_route_options(options: MutableMapping[str, Any]) -> tuple[Reader, WireOptions]:
    """Take the options of the plain path out of ``storage_options``: ``reader``, and those that only it knows.

    ``connect_timeout``, ``read_timeout`` and ``max_connections`` stay, since libraries know them as well. Without a
    ``first_byte_timeout`` the ``read_timeout`` holds for the first byte, too.

    Raises:
        PlanError: One of them makes no sense.
    """
    reader = options.pop("reader", "auto")
    if reader not in get_args(Reader):
        raise PlanError(f"reader must be one of {', '.join(map(repr, get_args(Reader)))}, got {reader!r}")
    chosen: dict[str, Any] = {}
    for name, field in _SECONDS.items():
        if name in options:
            seconds = options.pop(name) if name in ("first_byte_timeout", "total_timeout") else options[name]
            chosen[field] = _positive(name, seconds)
    if "first_byte_s" not in chosen and "idle_s" in chosen:
        chosen["first_byte_s"] = chosen["idle_s"]
    if "max_connections" in options:
        chosen["connections"] = int(_positive("max_connections", options["max_connections"]))
    return reader, WireOptions(**chosen)


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise PlanError(f"{name} must be a number above 0, got {value!r}")
    return float(value)


def _has_proxy(target: Target) -> bool:
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    proxies = getproxies_environment()
    has_one = bool(proxies.get("https" if target.is_tls else "http") or proxies.get("all"))
    return has_one and not proxy_bypass_environment(f"{target.host}:{target.port}", proxies)
