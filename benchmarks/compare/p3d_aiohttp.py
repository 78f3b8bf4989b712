"""The ceiling of P3d over the network: aiohttp reads the images, and a bare pool of threads decodes them."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.compare.p3_function import decoded
from benchmarks.images import IMAGES, WORKERS
from benchmarks.shards import STORE
from benchmarks.workload import Workload

AT_ONCE = 64
"""Maximum number of concurrent requests."""

AHEAD = 192
"""Number of images that are read or decoded at the same time, or wait for their turn."""


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays, one image at a time, in order. The names of the images are known before."""
    import aiohttp
    import uvloop

    folder = f"{os.environ[STORE]}/bench/{workload.paths[0].parent.name}"
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, ThreadPoolExecutor(WORKERS) as pool:
        loop = runner.get_loop()

        async def session() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE), raise_for_status=True)

        async def image(client: aiohttp.ClientSession, name: str) -> Any:
            async with client.get(f"{folder}/{name}") as answer:
                jpeg = await answer.read()
            return await loop.run_in_executor(pool, decoded, jpeg)

        client = runner.run(session())
        try:
            ahead: deque[tuple[int, asyncio.Task[Any]]] = deque()
            for path in workload.paths:
                ahead.append((int(path.stem) % IMAGES, loop.create_task(image(client, path.name))))
                if len(ahead) == AHEAD:
                    yield _of(loop, *ahead.popleft())
            while ahead:
                yield _of(loop, *ahead.popleft())
        finally:
            runner.run(client.close())


def _of(loop: asyncio.AbstractEventLoop, label: int, image: asyncio.Task[Any]) -> dict[str, Any]:
    return {"image": loop.run_until_complete(image)[None], "label": np.array([label])}
