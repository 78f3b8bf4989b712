"""Find the shards of a source: in its index, or by listing what its patterns match."""

from __future__ import annotations

import asyncio

from aiostream_data._engine.context import RunContext, hop
from aiostream_data.errors import ObjectNotFoundError
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.policies import handling_of
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
        skips = isinstance(node, ReadFiles) and handling_of(node.on_error).kind == "skip"
        return await _list(stores, node.patterns, skips, is_inner=bool(context.prefix))
    content = await read_index_bytes(stores, node.index_url)
    shards: list[ShardRef] = await hop(
        context.counters(node), context.services.pool.submit(_choose, node.index_url, bytes(content), node.patterns)
    )
    return shards


async def _list(stores: StoreSet, patterns: tuple[str, ...], skips: bool, is_inner: bool) -> list[ShardRef]:
    """Return what patterns match.

    Args:
        skips: A file that is named, and missing, is lost when its turn comes.
        is_inner: Also where all are missing. Otherwise that is taken for a wrong name, and raised.
    """
    literal = [pattern for pattern in patterns if not has_magic(pattern)]
    known = {url: ShardRef(url) for url in literal[ASKED_AT_OPEN:]}
    missing: list[ObjectNotFoundError] = []

    async def find(pattern: str) -> list[ShardRef]:
        if pattern in known:
            return [known[pattern]]
        try:
            return await stores.glob(pattern)
        except ObjectNotFoundError as error:
            if not skips or error.is_bucket or has_magic(pattern):
                raise
            missing.append(error)
            return [ShardRef(pattern)]

    found = await asyncio.gather(*map(find, patterns))
    if missing and len(missing) == len(patterns) and not is_inner:
        raise missing[0]
    return [shard for of_pattern in found for shard in of_pattern]


def _choose(index_url: str, content: bytes, patterns: tuple[str, ...]) -> list[ShardRef]:
    return choose_shards(index_url, parse_index(index_url, content), patterns)
