"""Fill one buffer by several requests at once: each of them writes to its place, so that nothing is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from aiostream_data.rows.records import ByteRange, ShardRef
from aiostream_data.storage.ranges import plan_ranges, shared_out

AT_ONCE: Final = 8
"""Parts of one object that are on their way together."""


class ReadsInto(Protocol):
    """What is needed of a store."""

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None: ...


def parts_of(shard: ShardRef, nbytes: int, part_nbytes: int | None) -> list[ByteRange]:
    """Return the parts in which the first ``nbytes`` of an object are asked for; an empty object has none.

    Small objects are one part, and so are those whose version nobody knows: parts of two versions would not be noticed.

    Args:
        part_nbytes: Size of a part; None where the store gains nothing by being asked for several.
    """
    if part_nbytes is None or not shard.version:
        return [ByteRange(0, nbytes)] if nbytes else []
    size = shared_out(part_nbytes, nbytes, AT_ONCE)
    return list(plan_ranges(nbytes, size, size))


async def read_parts(
    store: ReadsInto, shard: ShardRef, parts: list[ByteRange], buffer: memoryview, at_once: int = AT_ONCE
) -> None:
    """Read parts of an object, each to the place in the buffer that is its place in the object.

    Cancelled or failed, nothing is written to the buffer any more.

    Args:
        buffer: The caller's, who has reserved all of it.
        at_once: Most requests at the same time.

    Raises:
        StorageError: A part cannot be read; the first that failed says why.
    """
    if len(parts) < 2:
        for part in parts:
            await store.read_into(shard, part.start, buffer[part.start : part.stop])
        return
    left = iter(parts)
    readers = [asyncio.ensure_future(_read(store, shard, left, buffer)) for _ in range(min(at_once, len(parts)))]
    try:
        await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)


async def _read(store: ReadsInto, shard: ShardRef, left: Iterator[ByteRange], buffer: memoryview) -> None:
    for part in left:
        await store.read_into(shard, part.start, buffer[part.start : part.stop])
