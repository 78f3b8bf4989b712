"""gcsfs by Google's JSON interface, without credentials and without its probe by gRPC."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.compare.cloud_passes import ReadOne, on_loop
from benchmarks.pipeline.cloud_work import Cell, Client, Part, Place

os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # asks an emulator by gRPC, and waits for a minute

IMPORTS = ("gcsfs",)


def open_client(place: Place, cell: Cell) -> Client:
    """Open it."""
    return on_loop(_opened(place), cell)


@asynccontextmanager
async def _opened(place: Place) -> AsyncIterator[ReadOne]:
    import aiohttp
    import gcsfs

    tls = ssl.create_default_context(cafile=place.authority) if place.authority else True
    file_system = gcsfs.GCSFileSystem(
        project="bench", token="anon", endpoint_url=place.url, asynchronous=True, skip_instance_cache=True,
        session_kwargs={"connector": aiohttp.TCPConnector(ssl=tls, limit=0)},
    )  # fmt: skip
    session = await file_system._set_session()

    async def read_one(part: Part, lane: int) -> bytes:
        body: bytes = await file_system._cat_file(f"bench/{part.key}", start=part.start, end=part.start + part.nbytes)
        return body

    try:
        yield read_one
    finally:
        await session.close()
