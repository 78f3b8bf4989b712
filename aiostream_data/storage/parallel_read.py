"""Fill one buffer with several concurrent requests. Each request writes directly to its part of the buffer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from aiostream_data.rows.records import ByteRange, ShardRef
from aiostream_data.storage.ranges import plan_ranges, shared_out

AT_ONCE: Final = 8
"""Maximum number of concurrent requests for parts of one object."""


class ReadsInto(Protocol):
    """Interface of a store from which parts of objects can be read."""

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None: ...


def parts_of(shard: ShardRef, nbytes: int, part_nbytes: int | None, at_once: int = AT_ONCE) -> list[ByteRange]:
    """Split the first ``nbytes`` bytes of an object into parts to request. An empty object has no parts.

    Small objects are requested as one part. Objects without a known version are also requested as one part, because a
    mix of parts from two versions could not be detected.

    Args:
        part_nbytes: Size of a part, or None if the store does not benefit from parallel requests.
        at_once: Number of concurrent requests among which to divide the object. With 1, other objects are read at the
            same time, and parts have the size ``part_nbytes``.
    """
    if part_nbytes is None or not shard.version:
        return [ByteRange(0, nbytes)] if nbytes else []
    size = part_nbytes if at_once == 1 else shared_out(part_nbytes, nbytes, at_once)
    return list(plan_ranges(nbytes, size, size))


async def read_parts(
    store: ReadsInto, shard: ShardRef, parts: list[ByteRange], buffer: memoryview, at_once: int = AT_ONCE
) -> None:
    """Read parts of an object into the buffer, each at its offset in the object.

    After this coroutine has returned, raised or been cancelled, no request writes to the buffer.

    Args:
        buffer: Memory for the complete object, owned by the caller.
        at_once: Maximum number of concurrent requests.

    Raises:
        StorageError: A part cannot be read. The error of the first failed part is raised.
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
