"""Find the files of a split of a data set on the Hugging Face Hub, and the constructor that reads them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiostream_data.arguments import shown
from aiostream_data.dataset.any_format import FoundFormat
from aiostream_data.dataset.hub_splits import (
    MAX_README_NBYTES,
    README,
    chosen,
    configurations,
    files_of,
    patterns_of_config,
    splits_of_names,
)
from aiostream_data.dataset.store_questions import ask_stores
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.formats import recognition
from aiostream_data.formats.recognition import FileFormat, by_name, is_json
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.braces import as_one_pattern
from aiostream_data.storage.hub_urls import is_repository, root_of

if TYPE_CHECKING:
    from aiostream_data.storage.stores import StoreSet

logger = logging.getLogger("aiostream_data")

_WHOLE_FILES: Final = frozenset({recognition.IMAGES})


def find_hub_files(
    repository: str, split: str, config: str | None, revision: str, storage_options: Mapping[str, Any]
) -> FoundFormat:
    """Find the files of a split, at one commit. Blocks.

    Raises:
        PlanError: An argument is invalid, there is no such split or configuration, or the format is unknown.
        StorageError: The Hub did not answer, or refused the request.
        MissingExtraError: A library is not installed.
    """
    for name, value in (("repository", repository), ("split", split), ("revision", revision)):
        if not isinstance(value, str) or not value:
            raise ArgumentTypeError(f"{name} must be a text, got {shown(value)}")
    if not isinstance(config, str | None):
        raise ArgumentTypeError(f"config must be the name of a configuration, or None, got {shown(config)}")
    if not is_repository(repository):
        raise PlanError(f"repository must have the form 'organization/name', got {shown(repository)}")
    found = ask_stores(storage_options, partial(_found, repository, split, config, revision))
    logger.info("%s: %s", repository, found)
    return found


async def _found(repository: str, split: str, config: str | None, revision: str, stores: StoreSet) -> FoundFormat:
    given = root_of(repository, revision)
    shards = await stores.glob(given + "**")
    commit = shards[0].version
    sizes = {shard.url.removeprefix(given): shard.nbytes for shard in shards}
    root = root_of(repository, commit)
    readme = await _readme(root, sizes.get(README), stores)
    splits = _splits(repository, chosen(configurations(readme, repository), config, repository), list(sizes))
    if split not in splits:
        known = f"Its splits are {', '.join(map(repr, splits))}." if splits else "It has no data files."
        raise PlanError(f"{repository} has no split {split!r}. {known}")
    format, paths = _format_of(repository, split, splits[split])
    urls = [as_one_pattern(root + path) for path in paths]
    return FoundFormat(format, urls, tuple(sizes[path] for path in paths), f"split {split!r} of commit {commit}")


async def _readme(root: str, nbytes: int | None, stores: StoreSet) -> str:
    text = bytearray(min(nbytes or 0, MAX_README_NBYTES))
    await stores.read_into(ShardRef(root + README, nbytes), 0, memoryview(text))
    return text.decode("utf-8", "replace")


def _splits(repository: str, config: Mapping[str, Any] | None, paths: Sequence[str]) -> dict[str, list[str]]:
    patterns = None if config is None else patterns_of_config(config, repository)
    if patterns is None:
        return splits_of_names(paths)
    return {split: found for split, some in patterns.items() if (found := files_of(some, paths))}


def _format_of(repository: str, split: str, paths: Sequence[str]) -> tuple[FileFormat, list[str]]:
    """Return the format that most files suggest by their names, and the files in this format.

    Raises:
        PlanError: The files have several formats, or none that can be read.
    """
    groups: dict[FileFormat, list[str]] = {}
    for path in paths:
        format = recognition.JSON_LINES if is_json(path) else by_name(path)
        if format is not None:
            groups.setdefault(format, []).append(path)
    if len(groups) == 1 and not groups.keys() & _WHOLE_FILES:
        return next(iter(groups.items()))
    counts = ", ".join(f"{len(some)} of {format.name}" for format, some in groups.items()) or "none of a known format"
    raise PlanError(
        f"the split {split!r} of {repository} has files that from_hub() cannot choose: {counts}. Pass a pattern, such "
        f"as hf://datasets/{repository}/data/*.parquet, to the constructor of their format."
    )
