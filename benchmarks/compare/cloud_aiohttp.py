"""aiohttp, as one would use it: a session, no limit of connections, whole bodies."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.compare.cloud_passes import ReadOne, on_loop, path_of
from benchmarks.pipeline.cloud_work import Cell, Client, Part, Place

IMPORTS = ("aiohttp",)


def open_client(place: Place, cell: Cell) -> Client:
    """Open it on asyncio's own loop; uvloop makes it slower on ranges and a little faster on small objects."""
    return on_loop(_opened(place), cell)


@asynccontextmanager
async def _opened(place: Place) -> AsyncIterator[ReadOne]:
    import aiohttp
    import yarl

    tls = ssl.create_default_context(cafile=place.authority) if place.authority else True
    connector = aiohttp.TCPConnector(limit=0, ssl=tls)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def read_one(part: Part, lane: int) -> bytes:
            headers = {} if part.is_whole else {"Range": f"bytes={part.start}-{part.start + part.nbytes - 1}"}
            async with session.get(yarl.URL(path_of(place, part), encoded=True), headers=headers) as answer:
                return await answer.read()

        yield read_one
