"""Find the shards of a source: in its index, or by listing what its patterns match."""

from __future__ import annotations

import asyncio

from aiostream_data._engine.context import RunContext, hop
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.records import ShardRef
from aiostream_data.storage.index_file import choose_shards, parse_index
from aiostream_data.storage.index_reading import read_index_bytes
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.urls import has_magic

ASKED_AT_OPEN = 64
"""URLs without wildcards whose existence and size are asked for at open; the rest when they are read."""


def names_shards(node: ListFiles | ReadFiles) -> bool:
    """True where a source says itself what it reads."""
    return bool(node.patterns) or node.index_url is not None


async def search_shards(context: RunContext, node: ListFiles | ReadFiles) -> list[ShardRef]:
    """Return the shards of a source that names them, in its order.

    Raises:
        NoMatchError: A pattern matches nothing.
        IndexFileError: The index is none.
        StorageError: A store did not answer.
    """
    stores = context.services.stores(node.storage_options)
    if node.index_url is None:
        return await _list(stores, node.patterns)
    content = await read_index_bytes(stores, node.index_url)
    shards: list[ShardRef] = await hop(
        context.counters(node), context.services.pool.submit(_choose, node.index_url, bytes(content), node.patterns)
    )
    return shards


async def _list(stores: StoreSet, patterns: tuple[str, ...]) -> list[ShardRef]:
    literal = [pattern for pattern in patterns if not has_magic(pattern)]
    known = {url: ShardRef(url) for url in literal[ASKED_AT_OPEN:]}

    async def find(pattern: str) -> list[ShardRef]:
        return [known[pattern]] if pattern in known else await stores.glob(pattern)

    found = await asyncio.gather(*map(find, patterns))
    return [shard for of_pattern in found for shard in of_pattern]


def _choose(index_url: str, content: bytes, patterns: tuple[str, ...]) -> list[ShardRef]:
    return choose_shards(index_url, parse_index(index_url, content), patterns)
