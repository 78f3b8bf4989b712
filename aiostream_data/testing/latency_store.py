"""Store that adds artificial latency and records its requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import Store
from aiostream_data.storage.urls import split_url


@dataclass(slots=True)
class LatencyStore:
    """Store that delays and records each request to ``inner``. Register a factory to open it by URL::

        register_store("slow", lambda options, run_blocking: LatencyStore(MemoryStore(), latency_s=0.02))

    Attributes:
        inner: Store that serves the requests; closing the LatencyStore also closes this store.
        scheme: URL scheme of this store.
        inner_scheme: URL scheme of the URLs passed to ``inner``.
        latency_s: Seconds before the first byte of every response.
        bytes_per_s: Bandwidth of one request in bytes per second; None for no limit.
        ranges: Byte ranges (url, start, stop) of all reads, in order of arrival.
        requests: Number of requests of any kind so far.
        in_flight, max_in_flight: Current and maximum number of pending requests.
    """

    inner: Store
    scheme: str = "slow"
    inner_scheme: str = "memory"
    latency_s: float = 0.0
    bytes_per_s: float | None = None
    ranges: list[tuple[str, int, int]] = field(default_factory=list)
    requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0

    async def info(self, url: str) -> ShardRef:
        await self._delay(0)
        return self._outer(await self.inner.info(self._inner_url(url)))

    async def glob(self, pattern: str) -> list[ShardRef]:
        await self._delay(0)
        return [self._outer(shard) for shard in await self.inner.glob(self._inner_url(pattern))]

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        self.ranges.append((shard.url, start, start + len(buffer)))
        await self._delay(len(buffer))
        await self.inner.read_into(replace(shard, url=self._inner_url(shard.url)), start, buffer)

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def _delay(self, nbytes: int) -> None:
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.latency_s + (nbytes / self.bytes_per_s if self.bytes_per_s else 0.0))
        finally:
            self.in_flight -= 1

    def _inner_url(self, url: str) -> str:
        return f"{self.inner_scheme}://{split_url(url).path}"

    def _outer(self, shard: ShardRef) -> ShardRef:
        return replace(shard, url=f"{self.scheme}://{split_url(shard.url).path}")
