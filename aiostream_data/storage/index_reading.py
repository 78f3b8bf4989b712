"""Read the index file of a data set with one size look-up and one GET request."""

from __future__ import annotations

from typing import Protocol

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.index_file import check_nbytes


class Reads(Protocol):
    """Store methods needed to read an index."""

    async def info(self, url: str) -> ShardRef: ...

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None: ...


async def read_index_bytes(stores: Reads, index_url: str) -> bytearray:
    """Return the content of an index file.

    Raises:
        StorageError: The index cannot be read, or was replaced during the read.
        IndexFileError: The object is too large for an index.
    """
    shard = await stores.info(index_url)
    check_nbytes(index_url, shard.nbytes or 0)
    content = bytearray(shard.nbytes or 0)
    await stores.read_into(shard, 0, memoryview(content))
    return content
