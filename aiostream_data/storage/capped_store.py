"""Apply the user's limits on requests, bytes and connections to stores that do not limit their own requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import Store
from aiostream_data.storage.caps import Caps
from aiostream_data.storage.meters import meter_of


@dataclass(slots=True)
class CappedStore:
    """Store wrapper that delays each call until the user's limits permit the call. Closing the wrapper closes
    ``inner``.

    A listing counts as one request, even if the store's library sends several requests for one listing.

    Attributes:
        endpoint: Custom endpoint of the store, or "" for the default endpoint.
    """

    inner: Store
    caps: Caps
    endpoint: str = ""

    async def info(self, url: str) -> ShardRef:
        async with meter_of(url, self.endpoint).passage(self.caps, 0):
            return await self.inner.info(url)

    async def glob(self, pattern: str) -> Sequence[ShardRef]:
        async with meter_of(pattern, self.endpoint).passage(self.caps, 0):
            return await self.inner.glob(pattern)

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        async with meter_of(shard.url, self.endpoint).passage(self.caps, len(buffer)):
            await self.inner.read_into(shard, start, buffer)

    async def aclose(self) -> None:
        await self.inner.aclose()
