"""Our store for ``s3://``, as a loader has it."""

from __future__ import annotations

from benchmarks.compare.cloud_passes import on_loop, our_store, uvloop_loop
from benchmarks.pipeline.cloud_work import Cell, Client, Place

IMPORTS = ("numpy", "uvloop", "aiohttp", "s3fs", "aiostream_data.storage.s3", "aiostream_data.storage.stores")


def open_client(place: Place, cell: Cell) -> Client:
    """Open it with a key that nobody checks: requests are signed as they always are."""
    client = {"region_name": "us-east-1", **({"verify": place.authority} if place.authority else {})}
    options = {"endpoint_url": place.url, "key": "access", "secret": "secret", "client_kwargs": client}
    return on_loop(our_store(options, cell, lambda part: f"s3://bench/{part.key}"), cell, uvloop_loop)
