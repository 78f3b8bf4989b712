"""Clients of object stores, without a data set: obstore, aiohttp, and obstore with zlib."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from benchmarks.compare import cloud_aiohttp, cloud_obstore
from benchmarks.compare.cloud_passes import ReadOne, on_loop, uvloop_loop
from benchmarks.pipeline.cloud_work import Cell, Client, Part, Place
from benchmarks.pipeline.dataset_cells import Prepare, Read, Reader, Work
from benchmarks.pipeline.dataset_objects import KIB, Tally

IMPORTS = ("uvloop",)
IMPORTS_OF = {"obstore": cloud_obstore.IMPORTS, "aiohttp": cloud_aiohttp.IMPORTS, "zlib": cloud_obstore.IMPORTS}
THREAD_NBYTES = 64 * KIB
"""Smaller objects are decompressed on the event loop."""


def open_reader(work: Work) -> Reader:
    """Return a reader with one client for all passes."""
    return _opened(work)


@contextmanager
def _opened(work: Work) -> Iterator[Prepare]:
    cell = Cell("", bool(work.place.authority), 0, work.at_once)
    with _client(work, cell) as read_all:

        def prepare(count: int) -> Read:
            parts = work.objects.parts(work.root, count, work.part_nbytes)

            def read(tally: Tally) -> None:
                read_all(parts, lambda part, body: tally.add(body))

            return read

        yield prepare


def _client(work: Work, cell: Cell) -> Client:
    if work.variant == "aiohttp":
        return cloud_aiohttp.open_client(work.place, cell)
    if work.variant == "obstore":
        return cloud_obstore.open_client(work.place, cell)
    return on_loop(_decompressing(work.place), cell, uvloop_loop)


@asynccontextmanager
async def _decompressing(place: Place) -> AsyncIterator[ReadOne]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        async with cloud_obstore.opened(place) as read_compressed:

            async def read_one(part: Part, lane: int) -> Any:
                body = await read_compressed(part, lane)
                if part.total < THREAD_NBYTES:
                    return _decompressed(body)
                return await loop.run_in_executor(pool, _decompressed, body)

            yield read_one


def _decompressed(body: Any) -> bytes:
    return zlib.decompress(body, wbits=zlib.MAX_WBITS | 16, bufsize=4 * memoryview(body).nbytes)
