"""Write index files. An index file lists the shards of a dataset, so opening the dataset needs no listing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiostream_data.arguments import local_path, several, shown
from aiostream_data.dataset.store_questions import ask_stores
from aiostream_data.errors import PlanError
from aiostream_data.formats.whole_object import write_object
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.braces import patterns_of
from aiostream_data.storage.index_file import IndexedShard, format_index
from aiostream_data.storage.retry import take_retry_options
from aiostream_data.storage.stores import options_of
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
    """List files and write an index file for the ``index=`` argument of file sources. Blocks.

    The index contains the URL and size of each file. Shards in or below the folder of the index get relative names, so
    a dataset can be moved together with its index.

    Args:
        files: Patterns or URLs, or a dataset with one file source. The function lists files with the options of that
            source.
        path_or_url: Destination of the index file. The file becomes visible only when it is complete.
        versions: Also store ETags, generations or modification times, so that a replaced shard raises an error. The
            default is True, except for local files, because copying changes the modification time of a file.
        records: Number of records of each shard, by URL, to store in the index.
        storage_options: Options of the store, as in fsspec, for writing the index. If ``files`` has no options, the
            function also uses these options for listing.

    Returns:
        Number of shards in the index.

    Raises:
        PlanError: The dataset does not have exactly one file source, or the index would overwrite a listed file.
        NoMatchError, StorageError: The files cannot be listed.
        IndexFileError: The index would be unusable, because a shard is listed twice or is in another store.
        MissingExtraError: Writing to this URL needs fsspec, which is not installed.
        OSError: The index cannot be written.
    """
    patterns, options = _listed_by(files, storage_options)
    target = local_path("path_or_url", path_or_url, "a path or URL")
    if has_magic(target):
        raise PlanError(
            f"write_index(): path_or_url is a pattern ({shown(target)}), but must be the file to write. "
            "Check the argument order: write_index(files, path_or_url)."
        )
    shards = ask_stores(options, lambda stores: stores.glob(patterns))
    _check_kept(shards, target)
    counts = records or {}
    indexed = [IndexedShard(_named(shard, versions), counts.get(shard.url)) for shard in shards]
    write_object(target, format_index(target, indexed), _for_fsspec(target, storage_options or options))
    return len(indexed)


def _check_kept(shards: Sequence[ShardRef], target: str) -> None:
    """Check that the index file would not overwrite a listed file, and that the index does not list itself.

    Raises:
        PlanError: The index is one of the listed files.
    """
    if split_url(target) in {split_url(shard.url) for shard in shards}:
        raise PlanError(
            f"write_index(): path_or_url={shown(target)} is one of the listed files and would be overwritten. "
            "Give the index a name that the patterns do not match."
        )


def _listed_by(files: Any, storage_options: Mapping[str, Any] | None) -> tuple[list[str], Mapping[str, Any]]:
    plan = getattr(files, "plan", None)
    if not isinstance(plan, Node):
        listed = [files] if isinstance(files, (str, os.PathLike)) else several("files", files, "URLs or paths")
        named = [local_path("files", one, "URLs or paths") for one in listed]
        return [pattern for one in named for pattern in patterns_of(one)], storage_options or {}
    sources = [node for node in walk(plan) if isinstance(node, (ListFiles, ReadFiles)) and node.patterns]
    if len(sources) != 1:
        raise PlanError(
            f"write_index() needs a dataset with exactly one file source, found {len(sources)}. "
            "Pass the file patterns instead of the dataset."
        )
    return list(sources[0].patterns), storage_options or sources[0].storage_options


def _for_fsspec(url: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ``storage_options`` for writing through fsspec, without the options of this package's readers."""
    from aiostream_data.storage.wire.route import take_route_options

    settings = options_of(split_url(url).scheme, take_retry_options(options)[1])
    take_route_options(settings)
    return {name: value for name, value in settings.items() if name not in _FOR_READING}


def _named(shard: ShardRef, versions: bool | None) -> ShardRef:
    keep = split_url(shard.url).scheme != "file" if versions is None else versions
    return shard if keep else ShardRef(shard.url, shard.nbytes)
