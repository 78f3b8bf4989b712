"""Reads shards through a cache, to be killed at any moment: ``python cache_program.py FOLDER LIMIT SEED READS``.

The objects are made of their names, so that every byte can be checked and no server is needed. After every read that
was right it prints ``.``; at the end what the cache counted, as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from functools import cache

from aiostream_data import ShardCache
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.cache.store import CachingStore
from aiostream_data.storage.memory import MemoryStore

OBJECTS = 10
OBJECT_NBYTES = 4_000_000
"""Together more than twice what the cache may hold."""

RANGE_NBYTES = 1_000_000
AT_ONCE = 3


@cache
def content(name: str) -> bytes:
    return random.Random(name).randbytes(OBJECT_NBYTES)


class MadeStore(MemoryStore):
    """Objects of which every byte is known."""

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        await asyncio.sleep(0)
        buffer[:] = content(shard.url)[start : start + len(buffer)]


async def read_one(store: CachingStore, rng: random.Random) -> None:
    shard = ShardRef(f"made://{rng.randrange(OBJECTS)}", OBJECT_NBYTES, "1")
    start = rng.randrange(OBJECT_NBYTES)
    stop = min(OBJECT_NBYTES, start + rng.randrange(1, RANGE_NBYTES))
    buffer = bytearray(stop - start)
    await store.read_into(shard, start, memoryview(buffer))
    if buffer != content(shard.url)[start:stop]:
        raise SystemExit(f"wrong bytes of {shard.url} at {start}")
    sys.stdout.write(".")
    sys.stdout.flush()


async def read_many(folder: str, limit: str, seed: int, reads: int) -> None:
    shard_cache = ShardCache(folder, limit=limit)
    store = CachingStore(MadeStore(), shard_cache, "", asyncio.to_thread)
    rng = random.Random(seed)

    async def some() -> None:
        for _ in range(reads // AT_ONCE):
            await read_one(store, rng)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())
    await store.aclose()
    sys.stdout.write("\n" + json.dumps(shard_cache.stats().as_dict()) + "\n")


if __name__ == "__main__":
    asyncio.run(read_many(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
