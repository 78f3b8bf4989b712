"""Read ranges through a set of stores, for tests of what goes wrong on the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer

T = TypeVar("T")
NBYTES = 1 << 20
CONTENT = random.Random(7).randbytes(NBYTES)
QUICK = {"retry_total_s": 30.0, "connect_timeout": 5.0, "first_byte_timeout": 2.0, "read_timeout": 2.0}


def with_stores(server: FaultServer, case: Callable[[StoreSet], Awaitable[T]], **options: Any) -> T:
    """Return what ``case`` gives, with stores that read from the server."""

    async def main() -> T:
        stores = StoreSet({**server.storage_options, **QUICK, **options}, asyncio.to_thread)
        try:
            return await asyncio.wait_for(case(stores), 60)
        finally:
            await stores.aclose()

    return asyncio.run(main())


async def read(stores: StoreSet, shard: ShardRef, start: int = 0, stop: int | None = None) -> bytes:
    """Return bytes of an object."""
    if shard.nbytes is None:
        shard = await stores.info(shard.url)
    buffer = bytearray((shard.nbytes or 0 if stop is None else stop) - start)
    await stores.read_into(shard, start, memoryview(buffer))
    return bytes(buffer)


def reads(server: FaultServer) -> list[tuple[int, int]]:
    """Return the byte ranges that were asked for, in order; without a range, an object of ``CONTENT`` is."""
    asked = [(seen.start, seen.stop) for seen in server.log() if seen.kind == "get"]
    return [(0, NBYTES) if start is None or stop is None else (start, stop) for start, stop in asked]
