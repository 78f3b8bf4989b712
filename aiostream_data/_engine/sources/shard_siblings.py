"""Infer the compression of a shard that is too short to show it, from other shards of its source."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiostream_data.codecs.short_streams import MARK_NBYTES, Evidence, suffix_of
from aiostream_data.errors import ObjectNotFoundError
from aiostream_data.formats.stream import PROBE_NBYTES, resolve
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.stores import StoreSet

SIBLINGS = 3
"""Shards whose first bytes are read."""

SIZES_ASKED = 16
"""Shards whose size is asked for where no listing told it."""


@dataclass
class ShardSiblings:
    """Reads the first bytes of a few shards of one source, for each suffix once.

    Attributes:
        may_be_missing: Shards that do not exist are passed over.

    Which shards these are depends on the list of shards alone: the first of the same suffix that are long enough.
    """

    node: ReadFiles
    shards: Sequence[ShardRef]
    stores: StoreSet
    may_be_missing: bool = False
    _known: dict[str, Evidence | None] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def evidence(self, url: str) -> Evidence | None:
        """Return the compression that the siblings of an object have, or None where one of them is plain.

        Raises:
            StorageError: A sibling cannot be read.
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
        """Return the first bytes of the first shards of a suffix that are long enough to show their compression."""
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
