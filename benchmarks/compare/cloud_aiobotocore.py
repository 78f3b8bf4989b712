"""aiobotocore with as many connections as there are requests, and the retries that it comes with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.compare.cloud_passes import ReadOne, on_loop
from benchmarks.pipeline.cloud_work import Cell, Client, Part, Place

IMPORTS = ("aiobotocore.session", "aiobotocore.config", "botocore.retries.standard")


def open_client(place: Place, cell: Cell) -> Client:
    """Open it; uvloop does not help it."""
    return on_loop(_opened(place), cell)


@asynccontextmanager
async def _opened(place: Place) -> AsyncIterator[ReadOne]:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    config = AioConfig(
        max_pool_connections=128, s3={"addressing_style": "path"}, response_checksum_validation="when_required"
    )
    async with get_session().create_client(
        "s3", endpoint_url=place.url, region_name="us-east-1", aws_access_key_id="access",
        aws_secret_access_key="secret", config=config, verify=place.authority or None,
    ) as client:  # fmt: skip

        async def read_one(part: Part, lane: int) -> bytes:
            more = {} if part.is_whole else {"Range": f"bytes={part.start}-{part.start + part.nbytes - 1}"}
            answer = await client.get_object(Bucket="bench", Key=part.key, **more)
            async with answer["Body"] as body:
                content: bytes = await body.read()
                return content

        yield read_one
