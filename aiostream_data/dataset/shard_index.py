"""Write the index of a data set: the file that names its shards, so that opening it lists nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from aiostream_data.arguments import local_path, several, shown
from aiostream_data.errors import PlanError
from aiostream_data.formats.whole_object import write_object
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.index_file import IndexedShard, format_index
from aiostream_data.storage.retry import take_retry_options
from aiostream_data.storage.stores import StoreSet, options_of
from aiostream_data.storage.urls import has_magic, split_url

if TYPE_CHECKING:
    from aiostream_data.dataset.dataset import Dataset

_FOR_READING = frozenset({"hedge", "verify", "max_connections", "connect_timeout", "read_timeout", "direct"})


def write_index(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Dataset[Any],
    path_or_url: str | os.PathLike[str],
    *,
    versions: bool | None = None,
    records: Mapping[str, int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """List files once, and write a file that names them with their sizes, for ``index=`` of the sources. Blocks.

    Shards beside or below the index are named relative to it, so that a data set can be moved with its index.

    Args:
        files: Patterns or URLs; or a data set that reads one source of files, whose options are used for listing.
        path_or_url: Where the index is to be; it appears there when it is complete.
        versions: Note ETags, generations or modification times too, so that a shard that was replaced is an error. By
            default they are noted except for local files, whose times change when they are copied.
        records: Number of records of each shard, by URL, stored in the index.
        storage_options: As in fsspec; for listing, where ``files`` has none of its own, and for writing.

    Returns:
        How many shards were found.

    Raises:
        PlanError: The data set has no source of files, or several.
        NoMatchError, StorageError: They cannot be listed.
        IndexFileError: A reader could not use the index: a shard is named twice, or is in another store.
        MissingExtraError: fsspec is needed to write there, and not installed.
        OSError: It cannot be written.
    """
    patterns, options = _listed_by(files, storage_options)
    target = local_path("path_or_url", path_or_url, "a path or URL")
    if has_magic(target):
        raise PlanError(f"path_or_url names the index to write, got the pattern {shown(target)}: files come first")
    # On a thread of its own, since there may be an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        shards = thread.submit(asyncio.run, _find(patterns, options)).result()
    _check_kept(shards, target)
    counts = records or {}
    indexed = [IndexedShard(_named(shard, versions), counts.get(shard.url)) for shard in shards]
    write_object(target, format_index(target, indexed), _for_fsspec(target, storage_options or options))
    return len(indexed)


def _check_kept(shards: list[ShardRef], target: str) -> None:
    """Refuse to write the index over one of the files that it names, or to name itself in it.

    Raises:
        PlanError: It would be.
    """
    if split_url(target) in {split_url(shard.url) for shard in shards}:
        raise PlanError(
            f"path_or_url={shown(target)} is one of the files to be listed, and would be overwritten: give the index "
            "a name that the patterns do not match"
        )


def _listed_by(files: Any, storage_options: Mapping[str, Any] | None) -> tuple[list[str], Mapping[str, Any]]:
    plan = getattr(files, "plan", None)
    if not isinstance(plan, Node):
        listed = [files] if isinstance(files, (str, os.PathLike)) else several("files", files, "URLs or paths")
        return [local_path("files", one, "URLs or paths") for one in listed], storage_options or {}
    sources = [node for node in walk(plan) if isinstance(node, (ListFiles, ReadFiles)) and node.patterns]
    if len(sources) != 1:
        raise PlanError(f"an index is of one source of files with patterns, and the data set has {len(sources)}")
    return list(sources[0].patterns), storage_options or sources[0].storage_options


def _for_fsspec(url: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what of ``storage_options`` is for the file system that writes, without what only our readers know."""
    from aiostream_data.storage.wire.route import take_route_options

    settings = options_of(split_url(url).scheme, take_retry_options(options)[1])
    take_route_options(settings)
    return {name: value for name, value in settings.items() if name not in _FOR_READING}


async def _find(patterns: list[str], options: Mapping[str, Any]) -> list[ShardRef]:
    stores = StoreSet(options, asyncio.to_thread)
    try:
        return await stores.glob(patterns)
    finally:
        await stores.aclose()


def _named(shard: ShardRef, versions: bool | None) -> ShardRef:
    keep = split_url(shard.url).scheme != "file" if versions is None else versions
    return shard if keep else ShardRef(shard.url, shard.nbytes)
