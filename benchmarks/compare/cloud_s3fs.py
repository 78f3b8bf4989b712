"""s3fs with as many connections as there are requests; given start and end it sends no HEAD before a GET."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.compare.cloud_passes import ReadOne, on_loop
from benchmarks.pipeline.cloud_work import Cell, Client, Part, Place

IMPORTS = ("s3fs", "botocore.retries.standard")


def open_client(place: Place, cell: Cell) -> Client:
    """Open it."""
    return on_loop(_opened(place), cell)


@asynccontextmanager
async def _opened(place: Place) -> AsyncIterator[ReadOne]:
    import s3fs

    client = {"region_name": "us-east-1", **({"verify": place.authority} if place.authority else {})}
    config = {"max_pool_connections": 128, "response_checksum_validation": "when_required"}
    file_system = s3fs.S3FileSystem(
        key="access", secret="secret", endpoint_url=place.url, client_kwargs=client, config_kwargs=config,
        max_concurrency=1, asynchronous=True, skip_instance_cache=True,
    )  # fmt: skip
    session = await file_system.set_session()

    async def read_one(part: Part, lane: int) -> bytes:
        body: bytes = await file_system._cat_file(f"bench/{part.key}", start=part.start, end=part.start + part.nbytes)
        return body

    try:
        yield read_one
    finally:
        await session.close()
