"""Read a local file on the thread that decodes it, as long as its bytes are in the page cache.

A read on a reader thread costs two handoffs between threads, which take longer than copying a megabyte from the page
cache. Bytes that are not in the page cache are requested ahead by reader threads, while other bytes are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from aiostream_data._engine.memory.buffers import GRAIN_NBYTES, BlockPool
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.row_groups import Ranges, Steps, T, advance
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import ReadCached
from aiostream_data.storage.stores import StoreSet


def memory_for(ranges: Ranges, blocks: BlockPool) -> list[memoryview]:
    """Return memory for byte ranges: blocks of the pool, or small arrays."""
    return [
        (blocks.lend(part.nbytes) if part.nbytes >= GRAIN_NBYTES // 2 else np.empty(part.nbytes, np.uint8)).data
        for part in ranges
    ]


def cut(url: str, content: memoryview, ranges: Ranges) -> list[memoryview]:
    """Return ranges of the bytes of an object.

    Raises:
        CorruptRecordError: The object ends before a range.
    """
    for part in ranges:
        if not 0 <= part.start <= part.stop <= len(content):
            raise CorruptRecordError(url, part.start, "the file ends before this part of it")
    return [content[part.start : part.stop] for part in ranges]


@dataclass
class CachedFile:
    """A file whose bytes may be in the page cache.

    Attributes:
        stores: Stores that count the reads.
        shard: The file.
        blocks: Pool of memory for large ranges.
        read: Reader of the page cache, or None for an object that is not a local file.
        is_cached: False after the first range that was not in the page cache.
        content: All bytes of the object, if it was read whole.
        lease: Charge for the content.
    """

    stores: StoreSet
    shard: ShardRef
    blocks: BlockPool
    read: ReadCached | None
    is_cached: bool = True
    content: memoryview | None = None
    lease: object = field(default=None, repr=False)

    @classmethod
    def of(cls, stores: StoreSet, shard: ShardRef, blocks: BlockPool) -> CachedFile:
        read = stores.cached_reader(shard)
        return cls(stores, shard, blocks, read, read is not None)

    def parts(self, ranges: Ranges) -> Sequence[memoryview] | None:
        """Return the bytes of ranges, or None if some are not in the page cache. Call it on a worker thread.

        Raises:
            CorruptRecordError: The content of the object ends before a range.
        """
        if self.content is not None:
            return cut(self.shard.url, self.content, ranges)
        if self.read is None or not self.is_cached:
            return None
        parts = memory_for(ranges, self.blocks)
        self.is_cached = all(map(self.read, [part.start for part in ranges], parts))
        return parts if self.is_cached else None

    def count(self, ranges: Ranges) -> None:
        """Count the reads of ranges. Call it on the event loop."""
        if self.content is not None:  # one read, which the store counted
            return
        sizes = [part.nbytes for part in ranges if part.nbytes]
        self.stores.count_cached(self.shard, len(sizes), sum(sizes))


def advance_cached(
    steps: Steps[T], file: CachedFile, is_allowed: Callable[[Ranges], object]
) -> tuple[Ranges, T | None, list[Ranges]]:
    """Run a generator up to the first ranges that are not in the page cache, or up to its result.

    Args:
        is_allowed: Function that returns False for ranges that exceed the memory limit.

    Returns:
        The ranges that the generator needs next; its result, or None; and the ranges that were read.
    """
    was_read: list[Ranges] = []
    ranges, found = advance(steps, None)
    while found is None and is_allowed(ranges) and (parts := file.parts(ranges)) is not None:
        was_read.append(ranges)
        ranges, found = advance(steps, parts)
    return ranges, found, was_read
