"""All stores together, as a loader uses them."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from http_server import HttpFault, HttpObjects

from aiostream_data.storage import memory
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import CONTENT, read_range
from aiostream_data.testing.servers import ObjectServer

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def runners() -> list[Any]:
    """Return the event loops that a loader may run on."""
    if importlib.util.find_spec("uvloop") is None:
        return [asyncio.run]
    import uvloop

    return [asyncio.run, pytest.param(uvloop.run, id="uvloop")]


@pytest.mark.parametrize("run", runners())
def test_one_set_reads_from_every_store_at_once(
    run: Run, s3_endpoint: ObjectServer, http_objects: HttpObjects, memory_objects: None, tmp_path: Path
) -> None:
    (tmp_path / "part-0").write_bytes(CONTENT)
    memory.put("memory://all/part-0", CONTENT)
    s3_endpoint.put("s3://test-bucket/all/part-0", CONTENT)
    patterns = [str(tmp_path / "*"), "memory://all/*", "s3://test-bucket/all/*", http_objects.put("/part-0", CONTENT)]

    async def case() -> list[bytes]:
        stores = StoreSet({"s3://": s3_endpoint.storage_options}, asyncio.to_thread)
        try:
            shards = await stores.glob(patterns)
            whole = await asyncio.gather(*(read_range(stores, shard, 0, len(CONTENT)) for shard in shards))
            assert stores.counters.nbytes == len(patterns) * len(CONTENT)
            return whole
        finally:
            await stores.aclose()

    assert run(case()) == [CONTENT] * len(patterns)
    gc.collect()  # brings out the warnings of sessions that nobody closed


def test_a_store_that_fails_every_third_time_still_gives_every_byte(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)
    faults = [HttpFault(status=503), HttpFault(cut_after=100), HttpFault(status=500)]
    http_objects.faults.extend(fault for kind in faults * 5 for fault in (HttpFault(), HttpFault(), kind))
    step = 1000

    async def case() -> tuple[bytes, int]:
        stores = StoreSet({"max_connections": 4}, asyncio.to_thread)
        try:
            shard = await stores.info(url)
            starts = range(0, len(CONTENT), step)
            parts = await asyncio.gather(
                *(read_range(stores, shard, start, min(start + step, len(CONTENT))) for start in starts)
            )
            return b"".join(parts), stores.counters.retries
        finally:
            await stores.aclose()

    assert asyncio.run(case()) == (CONTENT, len(faults) * 5)
