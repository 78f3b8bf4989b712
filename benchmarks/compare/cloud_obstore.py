"""obstore, whose client is written in Rust; uvloop makes it faster on small objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.compare.cloud_passes import ReadOne, on_loop, uvloop_loop
from benchmarks.pipeline.cloud_work import Cell, Client, Part, Place

IMPORTS = ("obstore", "obstore.store", "uvloop")


def open_client(place: Place, cell: Cell) -> Client:
    """Open it."""
    return on_loop(opened(place), cell, uvloop_loop)


def _client_options(place: Place) -> dict[str, Any]:
    options: dict[str, Any] = {"allow_http": True}
    if place.authority:
        options["root_certificate"] = Path(place.authority).read_text()
    return options


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[ReadOne]:
    """Lend reads through one store."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "bench", endpoint=place.url, region="us-east-1", access_key_id="access", secret_access_key="secret",
        virtual_hosted_style_request=False, client_options=_client_options(place),
    )  # fmt: skip

    async def read_one(part: Part, lane: int) -> Any:
        if part.is_whole:
            return await (await obstore.get_async(store, part.key)).bytes_async()
        return await obstore.get_range_async(store, part.key, start=part.start, length=part.nbytes)

    yield read_one
