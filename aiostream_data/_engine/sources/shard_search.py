"""Find the shards of a source: read the source's index, or list the objects that match its patterns.

For each source in the plan, a saved state stores a summary of the source's shard list. Other shard lists become known
only during the run, such as the lists of inner datasets. For such a list, the state stores a digest. When the run
resumes, a list with a digest must be unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import groupby, islice

from aiostream_data._engine.flow.context import RunContext, hop
from aiostream_data._engine.flow.recall import outermost
from aiostream_data._engine.sources.listed_shards import ListedShards
from aiostream_data.errors import ObjectNotFoundError, StateMismatchError
from aiostream_data.failing.policies import handling_of
from aiostream_data.formats.base import ChoosesObjects, ReadsIndex
from aiostream_data.plan.shard_list import digest_of, lasting_urls
from aiostream_data.plan.snapshots import SnapshotFiles
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import ShardTable, joined_tables, shared_prefix, urls_of
from aiostream_data.storage.index_file import choose_shards, parse_index
from aiostream_data.storage.index_reading import read_index_bytes
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.urls import has_magic

ASKED_AT_OPEN = 64
"""Maximum number of URLs without wildcards that ``open()`` checks.

Further URLs are checked only when the loader reads their objects.
"""


def names_shards(node: ListFiles | ReadFiles) -> bool:
    """Return True if the source has patterns or an index URL."""
    return bool(node.patterns) or node.index_url is not None


async def find_shards(context: RunContext, node: ListFiles | ReadFiles) -> Sequence[ShardRef]:
    """Return the shards of a source. If ``open()`` already listed the shards, return that list."""
    resolved = context.services.features.of(ListedShards).resolved.get(node)
    return await search_shards(context, node) if resolved is None else resolved


async def listed_digest(
    context: RunContext, node: ListFiles | ReadFiles, shards: Sequence[ShardRef], saved: str
) -> str:
    """Return the digest of a shard list.

    Return "" in two cases: the state stores a summary of the shard list, or the plan contains all URLs of the list.

    Args:
        saved: Digest stored in the saved state; empty if the run does not resume.

    Raises:
        StateMismatchError: The digest of the shard list differs from ``saved``.
    """
    is_known = context.path == 0 and names_shards(node)
    if is_known or (names_shards(node) and node.index_url is None and not any(map(has_magic, node.patterns))):
        return ""
    digest: str = await hop(context.counters(node), context.services.pool.submit(_digest, urls_of(shards)))
    if saved and digest != saved:
        raise _another_list(node)
    return digest


def check_listed(lineage: Lineage, context: RunContext, node: ListFiles | ReadFiles, listed: str) -> None:
    """Check that the rows in a saved state were read from the current shard list.

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


async def search_shards(context: RunContext, node: ListFiles | ReadFiles) -> Sequence[ShardRef]:
    """Return the shards that a source reads, in order, from the source's index or by listing its patterns.

    Raises:
        NoMatchError: A pattern matches no object, or no object that the source reads.
        IndexFileError: The index file is invalid.
        StorageError: A store request failed.
    """
    found = await _search(context, node)
    format = getattr(node, "format", None)
    if isinstance(format, ChoosesObjects):
        found = await hop(context.counters(node), context.services.pool.submit(format.chosen, found))
    return found


async def _search(context: RunContext, node: ListFiles | ReadFiles) -> Sequence[ShardRef]:
    """Return the shards of a source in order, from the source's index or by listing its patterns.

    Raises:
        NoMatchError: A pattern matches no object.
        IndexFileError: The index file is invalid.
        StorageError: A store request failed.
    """
    if isinstance(node, SnapshotFiles):
        return node.known_files()
    stores = context.services.stores(node.storage_options)
    if node.index_url is None:
        parts: Sequence[str | ShardTable] = node.patterns
        if len(parts) > ASKED_AT_OPEN:
            parts = await hop(context.counters(node), context.services.pool.submit(_parts, node.patterns))
        glob = partial(_glob, context, node, stores)
        return await _list(glob, parts, _keeps_missing(node), is_inner=context.is_inner)
    content = await read_index_bytes(stores, node.index_url)
    shards: Sequence[ShardRef] = await hop(
        context.counters(node), context.services.pool.submit(_choose, node, node.index_url, bytes(content))
    )
    return shards


def _keeps_missing(node: ListFiles | ReadFiles) -> bool:
    return node.keeps_missing if isinstance(node, ListFiles) else handling_of(node.on_error).kind == "skip"


async def _glob(context: RunContext, node: ListFiles | ReadFiles, stores: StoreSet, pattern: str) -> Sequence[ShardRef]:
    """Return the shards that match a pattern.

    If a file of an inner dataset is missing, look for it again as often as its error policy retries. If the policy
    skips missing files, their readers look for them again.
    """
    handling = handling_of(getattr(node, "on_error", None))
    retries = handling.retries if context.is_inner and handling.kind == "raise" and not has_magic(pattern) else 0
    for attempt in range(retries):
        try:
            return await stores.glob(pattern)
        except ObjectNotFoundError as error:
            if error.is_bucket:
                raise
        context.counters(node).retries += 1
        await asyncio.sleep(handling.pause_s(attempt))
    return await stores.glob(pattern)


async def _list(
    glob: Callable[[str], Awaitable[Sequence[ShardRef]]],
    parts: Sequence[str | ShardTable],
    keeps_missing: bool,
    is_inner: bool,
) -> Sequence[ShardRef]:
    """Return the shards that match the patterns, in pattern order.

    Args:
        glob: Returns the shards that match a pattern.
        parts: Patterns, and shards in the places of URLs that are not asked for.
        keeps_missing: If True, keep a missing file in the list if its URL has no wildcards. Reading such a file later
            counts as a loss.
        is_inner: If True, do not raise an error when all files are missing. If False, raise an error, because the URLs
            are probably wrong.

    Raises:
        StorageError: A pattern could not be listed. If several could not, the error is that of the first pattern,
            whichever request ended first.
    """
    asked = [part for part in parts if isinstance(part, str)]
    found = await asyncio.gather(*map(glob, asked), return_exceptions=True)
    missing: list[ObjectNotFoundError] = []
    listed: list[Sequence[ShardRef]] = []
    for pattern, answer in zip(asked, found, strict=True):
        if not isinstance(answer, BaseException):
            listed.append(answer)
            continue
        if not keeps_missing or not isinstance(answer, ObjectNotFoundError) or answer.is_bucket or has_magic(pattern):
            raise answer
        missing.append(answer)
        listed.append([ShardRef(pattern)])
    if missing and len(missing) == len(parts) and not is_inner:
        raise missing[0]
    answers = iter(listed)
    return joined_tables([next(answers) if isinstance(part, str) else part for part in parts])


def _parts(patterns: Sequence[str]) -> list[str | ShardTable]:
    """Return the patterns to ask the store for, and in their places the shards of the URLs that are not asked for."""
    literal = (number for number, pattern in enumerate(patterns) if not has_magic(pattern))
    first = next(islice(literal, ASKED_AT_OPEN, None), len(patterns))
    parts: list[str | ShardTable] = list(patterns[:first])
    for is_asked, group in groupby(patterns[first:], has_magic):
        several = list(group)
        parts += several if is_asked else [ShardTable.of(map(ShardRef, several), shared_prefix(several))]
    return parts


def _choose(node: ListFiles | ReadFiles, index_url: str, content: bytes) -> ShardTable:
    format = getattr(node, "format", None)
    if isinstance(format, ReadsIndex):
        return joined_tables([format.indexed(index_url, content)])
    return joined_tables([choose_shards(index_url, parse_index(index_url, content), node.patterns)])
