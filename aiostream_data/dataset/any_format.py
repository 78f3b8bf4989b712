"""Find the format of files, and the constructor that reads them: ``Dataset.open_any()``."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from aiostream_data.arguments import shown
from aiostream_data.codecs.compression import detect
from aiostream_data.codecs.file_kinds import TWICE
from aiostream_data.dataset.store_questions import ask_stores
from aiostream_data.errors import ArgumentTypeError, NoMatchError, ObjectNotFoundError, PlanError
from aiostream_data.formats import recognition
from aiostream_data.formats.hive_partitions import names_of_folders
from aiostream_data.formats.plugins import FoundPlugin, installed_plugins
from aiostream_data.formats.recognition import (
    FileFormat,
    by_name,
    by_plugin,
    by_start_and_plugin,
    folder_layout,
    formats_of,
)
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.braces import as_one_pattern, patterns_of
from aiostream_data.storage.patterns import escaped
from aiostream_data.storage.urls import has_magic, is_http, split_url

if TYPE_CHECKING:
    from aiostream_data.rows.records import ShardRef
    from aiostream_data.storage.stores import StoreSet

logger = logging.getLogger("aiostream_data")

Groups: TypeAlias = "dict[FileFormat | None, list[str]]"

_CALL = (
    "Call a constructor, such as from_text(), from_files() for whole files, or from_fixed_length() for records of one "
    "size."
)


@dataclass(frozen=True)
class FoundFormat:
    """Files of one format, and how a :class:`Dataset` reads them.

    Attributes:
        format: The format.
        files: First argument of the constructor: a URL, a pattern, or a list of URLs.
        sizes: Size of each file in bytes, in the order of the listing; None for a file of unknown size.
        reason: How the format was recognized.
        compression: Compression of the file that was looked at, or "". Not for folders that are one dataset.
    """

    format: FileFormat
    files: str | list[str]
    sizes: tuple[int | None, ...]
    reason: str
    compression: str = ""

    @property
    def nbytes(self) -> int:
        """Size of all files in bytes. Files of unknown size count as 0."""
        return sum(size or 0 for size in self.sizes)

    @property
    def call(self) -> str:
        """The call of the constructor, as Python code. URLs are shown without secrets."""
        one = isinstance(self.files, str)
        more = ", ..." if len(self.files) > 1 else ""
        files = repr(safe_url(str(self.files))) if one else f"[{safe_url(self.files[0])!r}{more}]"
        arguments = "".join(f", {name}={value!r}" for name, value in self.format.arguments)
        return f"Dataset.{self.format.constructor}({files}{arguments})"

    def read_by(self, datasets: Any, **common: Any) -> Any:
        """Call the constructor of ``datasets``, the class :class:`Dataset`, also with the arguments ``common``."""
        constructor = getattr(datasets, self.format.constructor)
        return constructor(self.files, **dict(self.format.arguments), **common)

    def __str__(self) -> str:
        count = f"{len(self.sizes)} file" + ("s" if len(self.sizes) != 1 else "")
        return f"{self.format.name}: {count}, {self.nbytes:,} bytes, {self.reason}. Read by {self.call}"


def find_format(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> FoundFormat:
    """Find the format of a file, of all files in a folder, or of all files that match a pattern. Blocks.

    Lists the files, and reads the first 64 KiB of one of them. Names suggest a format; the bytes decide.

    Raises:
        FormatPluginError: An installed distribution offers a format that cannot be loaded.
        NoMatchError: There is no such file.
        PlanError: The format is unknown, or the files have several formats.
        StorageError: The store did not answer.
    """
    if not isinstance(url, (str, os.PathLike)) or not os.fspath(url):
        raise ArgumentTypeError(f"url must be the URL or path of a file or folder, or a pattern, got {shown(url)}")
    found = ask_stores(storage_options, partial(_found, os.fspath(url)))
    logger.info("%s: %s", safe_url(os.fspath(url)), found)
    return found


async def _found(url: str, stores: StoreSet) -> FoundFormat:
    patterns = patterns_of(url)
    root, shards = await _listed(patterns[0], stores) if len(patterns) == 1 else (None, await stores.glob(patterns))
    by_url = {shard.url: shard for shard in shards}
    if root is not None and (layout := folder_layout(_below(root, list(by_url)))) is not None:
        if layout is recognition.IMAGE_FOLDER and (splits := _splits(root, by_url)):
            names = ", ".join(map(repr, splits))
            raise PlanError(f"{safe_url(url)} contains the splits {names}, which are no classes. Pass one of them.")
        sizes = tuple(shard.nbytes for shard in shards if recognition.is_data(shard.url))
        return FoundFormat(layout, root, sizes, "recognized by the files in the folder")
    if root is not None and recognition.is_iceberg(_below(root, list(by_url))):
        raise PlanError(f"{safe_url(url)} is an Iceberg table. Use from_iceberg(), which leaves out deleted rows.")
    if root is not None:
        places = zip(by_url.items(), _below(root, list(by_url)), strict=True)
        by_url = dict(item for item, path in places if recognition.is_in_data_folder(path))
    groups = formats_of(by_url) if root is not None or _names_several(patterns) else {by_name(url): list(by_url)}
    if not groups:
        raise NoMatchError(safe_url(url), "the folder contains no data")
    plugins = installed_plugins() if None in groups else []
    groups = _with_plugins(groups, plugins)
    named: Groups = {format: urls for format, urls in groups.items() if format is not None} or groups
    if len(named) > 1:
        raise PlanError(_several(url, named))
    ((suggested, urls),) = named.items()
    inspected = next((each for each in urls if by_url[each].nbytes != 0), urls[0])
    start = await _start(by_url[inspected], stores)
    format, reason = _decided(inspected, suggested, start, plugins)
    if format == recognition.PARQUET and _are_partitioned(root or _folder_of(patterns), urls):
        format = recognition.PARTITIONED_PARQUET
    files = url if root is None and len(urls) == len(by_url) else list(map(as_one_pattern, urls))
    return FoundFormat(format, files, tuple(by_url[each].nbytes for each in urls), reason, detect(start[:4]))


def _splits(root: str, urls: Iterable[str]) -> list[str]:
    images = [url for url in urls if recognition.is_data(url) and by_name(url) is recognition.IMAGES]
    return recognition.splits_of(_below(root, images))


def _folder_of(patterns: Sequence[str]) -> str:
    """Return the folder in front of the first wildcard of one pattern, or "" for several patterns and for a file."""
    if len(patterns) > 1 or not has_magic(patterns[0]):
        return ""
    return re.split(r"[*?\[]", patterns[0], maxsplit=1)[0].rpartition("/")[0] + "/"


def _are_partitioned(folder: str, urls: Sequence[str]) -> bool:
    """Return True if all folders of files below a folder are partitions, as Hive writes them."""
    start = split_url(folder).path
    is_below = all(split_url(url).path.startswith(start) for url in urls)
    return is_below and names_of_folders(_below(folder, urls)) is not None


def _names_several(patterns: Sequence[str]) -> bool:
    return len(patterns) > 1 or has_magic(patterns[0])


def _with_plugins(groups: Groups, plugins: Sequence[FoundPlugin]) -> Groups:
    """Move files without a format to the formats of plugins that their names suggest."""
    named: Groups = {format: urls for format, urls in groups.items() if format is not None}
    for url in groups.get(None, ()) if plugins else ():
        named.setdefault(by_plugin(plugins, url), []).append(url)
    return named if plugins else groups


async def _listed(url: str, stores: StoreSet) -> tuple[str | None, Sequence[ShardRef]]:
    """Return the folder that ``url`` names, or None for a file or a pattern; and the files."""
    if has_magic(url):
        return None, await stores.glob(url)
    if not url.endswith("/"):
        try:
            return None, [await stores.info(url)]
        except ObjectNotFoundError:
            if is_http(split_url(url).scheme):
                raise
    if is_http(split_url(url).scheme):
        raise PlanError(f"HTTP servers cannot list the files of {safe_url(url)}. Pass the URL of one file.")
    folder = url.rstrip("/") + "/"
    return folder, await stores.glob(escaped(folder) + "**")


def _below(folder: str, urls: Sequence[str]) -> list[str]:
    start = len(split_url(folder).path)
    return [split_url(url).path[start:] for url in urls]


async def _start(shard: ShardRef, stores: StoreSet) -> bytes:
    known = shard if shard.nbytes is not None else await stores.info(shard.url)
    start = bytearray(min(known.nbytes or 0, recognition.START_NBYTES))
    await stores.read_into(known, 0, memoryview(start))
    return bytes(start)


def _decided(
    url: str, suggested: FileFormat | None, start: bytes, plugins: Sequence[FoundPlugin]
) -> tuple[FileFormat, str]:
    """Return the format of files, from the name and the first bytes of one of them.

    Raises:
        PlanError: No constructor reads this format.
    """
    found = by_start_and_plugin(plugins, start, suggested)
    if suggested is not None and suggested.is_plugin and found != suggested:
        suggested = None
    if suggested in (recognition.CSV, recognition.TSV) and found is recognition.JSON_LINES:
        return found, "recognized by the first bytes"  # the first line of such a file is an object, not a header
    if suggested is not None and (found is None or found in (suggested, recognition.TEXT, recognition.JSON_LINES)):
        if suggested is recognition.CSV and (delimited := recognition.csv_by_start(start)) is not suggested:
            return delimited, "recognized by the names and the header"
        return suggested, "recognized by the names"
    if found is recognition.TEXT and recognition.is_json(url):
        raise PlanError(
            f"{safe_url(url)} is one JSON document. Write one record per line for from_jsonl(), or use from_files() "
            "and json.loads."
        )
    if isinstance(found, FileFormat):
        return found, "recognized by the first bytes"
    if found is None:
        empty = "" if start else ", because the file is empty"
        raise PlanError(f"cannot recognize the format of {safe_url(url)}{empty}. {_CALL}")
    if suggested is not None and not found.is_certain:
        return suggested, "recognized by the names"
    cure = f"it is damaged, or compressed twice, {TWICE}" if found.is_compression else found.cure
    raise PlanError(f"{safe_url(url)} is {found.name}: {cure}")


def _several(url: str, groups: Groups) -> str:
    counts = ", ".join(f"{len(urls)} of {format.name}" for format, urls in groups.items() if format is not None)
    return f"{safe_url(url)} contains files of several formats: {counts}. Pass a pattern that matches one of them."
