"""The ceilings of P5: all bytes over the wire with nothing done to them, and the decoding with nothing read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.compare.p3_function import decoded
from benchmarks.images import WORKERS
from benchmarks.shards import STORE, keys_of
from benchmarks.workload import Workload

RANGE_NBYTES = 8 << 20
AT_ONCE = 16


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield nothing for ``wire``; for ``decode`` an image at a time."""
    if variant == "wire":
        asyncio.run(_read_all(workload))
        return
    jpegs = _in_memory(workload)
    with ThreadPoolExecutor(WORKERS) as pool:
        for (_, number), image in zip(jpegs, pool.map(decoded, [jpeg for jpeg, _ in jpegs]), strict=True):
            yield {"image": image[None], "label": np.array([number])}


def _in_memory(workload: Workload) -> list[tuple[bytes, int]]:
    """Return the images from local files; all but free, as they are in the page cache."""
    import tarfile

    found: list[tuple[bytes, int]] = []
    for path in workload.paths:
        with tarfile.open(path.parents[1] / "tar" / f"{path.stem}.tar") as tar:
            contents = [tar.extractfile(member) for member in tar.getmembers()]
            read = [content.read() for content in contents if content is not None]
        found += [(jpeg, int(number)) for jpeg, number in zip(read[::2], read[1::2], strict=True)]
    return found


async def _read_all(workload: Workload) -> None:
    import aiohttp

    parts = [
        (f"{os.environ[STORE]}/bench/{key}", start, min(start + RANGE_NBYTES, path.stat().st_size) - 1)
        for key, path in zip(keys_of(workload, "tfrecord"), workload.paths, strict=True)
        for start in range(0, path.stat().st_size, RANGE_NBYTES)
    ]
    left = iter(parts)

    async def read_some(session: aiohttp.ClientSession) -> None:
        for url, first, last in left:
            async with session.get(url, headers={"range": f"bytes={first}-{last}"}) as answer:
                await answer.read()

    async with aiohttp.ClientSession(auto_decompress=False) as session, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(read_some(session))
