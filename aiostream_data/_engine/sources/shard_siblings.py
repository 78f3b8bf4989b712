"""Infer the compression of a very short shard from the other shards of the same source."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiostream_data.codecs.compression_by_suffix import MARK_NBYTES, Evidence, suffix_of
from aiostream_data.errors import ObjectNotFoundError
from aiostream_data.formats.stream import PROBE_NBYTES, resolve
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.stores import StoreSet

SIBLINGS = 3
"""Maximum number of other shards whose first bytes are read to detect the compression."""

SIZES_ASKED = 16
"""Maximum number of requests that ask the store for the size of a shard."""


@dataclass
class ShardSiblings:
    """Detects the compression of a source's shards for each file suffix.

    The first shards with the same suffix that are long enough determine the result. The result thus depends only on the
    shard list.

    Attributes:
        may_be_missing: If True, skip shards that do not exist.
    """

    node: ReadFiles
    shards: Sequence[ShardRef]
    stores: StoreSet
    may_be_missing: bool = False
    _known: dict[str, Evidence | None] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def evidence(self, url: str) -> Evidence | None:
        """Return the compression of the shards with the same suffix as ``url``, or None if one of them is uncompressed.

        Raises:
            StorageError: One of the shards with the same suffix cannot be read.
        """
        suffix = suffix_of(url)
        async with self._lock:
            if suffix not in self._known:
                self._known[suffix] = await self._found(suffix)
        return self._known[suffix]

    async def _found(self, suffix: str) -> Evidence | None:
        compressed: Evidence | None = None
        for shard, first in await self._beginnings(suffix):
            compression = resolve("auto", self.node.format, first)
            if not compression:
                return None
            reason = f"other shards of its source are {compression} streams, such as {safe_url(shard.url)}"
            compressed = compressed or Evidence(compression, reason)
        return compressed

    async def _beginnings(self, suffix: str) -> list[tuple[ShardRef, bytes]]:
        """Return the first shards with ``suffix`` that are long enough, and the first bytes of each shard."""
        asked = 0
        found: list[tuple[ShardRef, bytes]] = []
        for shard in self.shards:
            if len(found) == SIBLINGS or asked == SIZES_ASKED:
                break
            if suffix_of(shard.url) != suffix:
                continue
            try:
                if shard.nbytes is None:
                    asked += 1
                    shard = await self.stores.info(shard.url)
                if shard.nbytes is not None and shard.nbytes >= MARK_NBYTES:
                    first = bytearray(min(PROBE_NBYTES, shard.nbytes))
                    await self.stores.read_into(shard, 0, memoryview(first))
                    found.append((shard, bytes(first)))
            except ObjectNotFoundError:
                if not self.may_be_missing:
                    raise
        return found
