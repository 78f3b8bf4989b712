"""Find the shards of a source: read the source's index, or list the matches of its patterns.

A saved state stores a summary of the shard list of each source in the plan. Some shard lists are known only at run
time: lists of inner datasets, and lists of files named by other rows. For a shard list known only at run time, the
state stores a digest. On resume, the list must be unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiostream_data._engine.flow.context import RunContext, hop
from aiostream_data._engine.flow.recall import outermost
from aiostream_data._engine.sources.listed_shards import ListedShards
from aiostream_data.errors import ObjectNotFoundError, StateMismatchError
from aiostream_data.failing.policies import handling_of
from aiostream_data.plan.shard_list import digest_of, lasting_urls
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.index_file import choose_shards, parse_index
from aiostream_data.storage.index_reading import read_index_bytes
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.urls import has_magic

ASKED_AT_OPEN = 64
"""Maximum number of URLs without wildcards that ``open()`` checks.

The other URLs are checked when the loader reads their objects.
"""


def names_shards(node: ListFiles | ReadFiles) -> bool:
    """Return True if the source has patterns or an index URL."""
    return bool(node.patterns) or node.index_url is not None


async def find_shards(context: RunContext, node: ListFiles | ReadFiles) -> list[ShardRef]:
    """Return the shards of a source. Reuse the list made when the loader was opened, if that list exists."""
    resolved = context.services.features.of(ListedShards).resolved.get(node)
    return await search_shards(context, node) if resolved is None else resolved


async def listed_digest(
    context: RunContext, node: ListFiles | ReadFiles, shards: Sequence[ShardRef], saved: str
) -> str:
    """Return the digest of a shard list.

    Return "" if the state stores a summary of the shard list, or if the plan contains all its URLs.

    Args:
        saved: Digest stored in the saved state; empty if the run does not resume.

    Raises:
        StateMismatchError: The digest of the shard list differs from ``saved``.
    """
    is_known = context.path == 0 and names_shards(node)
    if is_known or (names_shards(node) and node.index_url is None and not any(map(has_magic, node.patterns))):
        return ""
    urls = [shard.url for shard in shards]
    digest: str = await hop(context.counters(node), context.services.pool.submit(_digest, urls))
    if saved and digest != saved:
        raise _another_list(node)
    return digest


def check_listed(lineage: Lineage, context: RunContext, node: ListFiles | ReadFiles, listed: str) -> None:
    """Check that the rows in a saved state refer to the current shard list.

    Raises:
        StateMismatchError: The rows refer to a different shard list.
    """
    for space in set(outermost(lineage, context.services.origins)):
        if space.listed and space.listed != listed:
            raise _another_list(node)


def _digest(urls: Sequence[str]) -> str:
    return digest_of(lasting_urls(urls))


def _another_list(node: ListFiles | ReadFiles) -> StateMismatchError:
    where = "" if node.written_at is None else f", written at {node.written_at},"
    return StateMismatchError(
        [f"{node.label}{where} read other files when the state was saved"],
        "Restore those files. Shards may change only in a source that the plan itself names by URLs or patterns.",
    )


async def search_shards(context: RunContext, node: ListFiles | ReadFiles) -> list[ShardRef]:
    """Read the index or list the patterns of a source. Return the shards of the source in order.

    Raises:
        NoMatchError: A pattern matches no object.
        IndexFileError: The index file is invalid.
        StorageError: A store request failed.
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
    """Return the shards that match the patterns, in pattern order.

    Args:
        skips: If True, keep missing files whose URLs have no wildcards in the list. Reading a missing file counts as a
            loss.
        is_inner: If True, accept that all files are missing. If False, raise an error in this case, because the URLs
            are probably wrong.
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
