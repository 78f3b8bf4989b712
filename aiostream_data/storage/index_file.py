"""Index of a data set: a JSON Lines file with the URLs of all shards, which replaces a listing of the store. Does no
I/O.

The first line contains the format name and the number of shards, so that truncated files are detected::

    {"format": "aiostream-data-index", "version": 1, "shards": 2}
    {"url": "train-000.tfrecord", "nbytes": 104857600, "version": "\"9b2cf5\"", "records": 1000}
    {"url": "train-001.tfrecord", "nbytes": 104857600}

URLs without a scheme are relative to the index. An index is untrusted input: it may only name objects in its own
folder, in subfolders, or elsewhere in the same store. Only an index in a local file may name local files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from aiostream_data.codecs.file_kinds import START_NBYTES, kind_of
from aiostream_data.errors import IndexFileError, NoMatchError
from aiostream_data.object_names import lasting_url
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.patterns import compile_pattern, hint_of
from aiostream_data.storage.urls import has_magic, is_http, safe_url, split_bucket, split_url

MAX_NBYTES = 256 << 20
"""Maximum size of an index in bytes: enough for more than a million shards."""

FORMAT = "aiostream-data-index"
VERSION = 1
_MOST = (1 << 63) - 1
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[:/]")


class IndexedShard(NamedTuple):
    """Entry of an index: a shard and its number of records, or None if unknown."""

    shard: ShardRef
    records: int | None = None


def format_index(index_url: str, shards: Sequence[IndexedShard]) -> bytes:
    """Serialize an index that will be stored at ``index_url``.

    Raises:
        IndexFileError: A shard occurs twice, or its URL is not allowed in an index at ``index_url``.
    """
    lines = [json.dumps({"format": FORMAT, "version": VERSION, "shards": len(shards)})]
    lines += [json.dumps(_line(index_url, indexed)) for indexed in shards]
    content = ("\n".join(lines) + "\n").encode()
    parse_index(index_url, content)
    return content


def parse_index(index_url: str, content: bytes | memoryview) -> list[IndexedShard]:
    """Return the shards in the order of the index file, with absolute URLs.

    Raises:
        IndexFileError: The content is not an index, is truncated, contains a shard twice, or contains a forbidden URL.
    """
    found: list[IndexedShard] = []
    known: set[str] = set()
    lines = _lines(index_url, content)
    expected = _header(index_url, next(lines, (1, None))[1])
    for number, line in lines:
        indexed = _indexed(index_url, number, line)
        if indexed.shard.url in known:
            raise IndexFileError(safe_url(index_url), number, f"duplicate url {safe_url(indexed.shard.url)}")
        known.add(indexed.shard.url)
        found.append(indexed)
    if len(found) != expected:
        reason = f"the index lists {len(found)} shards, but its header declares {expected}: it is truncated or modified"
        raise IndexFileError(safe_url(index_url), len(found) + 1, reason)
    return found


def check_nbytes(index_url: str, nbytes: int) -> None:
    """Check the size of an index file before the file is read.

    Raises:
        IndexFileError: ``nbytes`` exceeds `MAX_NBYTES`.
    """
    if nbytes > MAX_NBYTES:
        raise IndexFileError(safe_url(index_url), 1, f"the index must have at most {MAX_NBYTES} bytes, got {nbytes}")


def choose_shards(index_url: str, shards: Sequence[IndexedShard], patterns: Iterable[str]) -> list[ShardRef]:
    """Return the shards that match each pattern. As in a listing, the matches of each pattern are sorted by URL.

    Without patterns, return all shards in the order of the index.

    Raises:
        NoMatchError: No shard of the index matches a pattern.
        IndexFileError: No patterns were passed and the index is empty.
    """
    wanted = list(patterns)
    if not wanted and not shards:
        raise IndexFileError(safe_url(index_url), 1, "the index lists no shards")
    if not wanted:
        return [indexed.shard for indexed in shards]
    found: list[ShardRef] = []
    by_place = {split_url(indexed.shard.url): indexed.shard for indexed in shards}
    for pattern in wanted:
        place = split_url(pattern)
        if has_magic(pattern):
            matches = compile_pattern(place.path, skip_hidden=place.scheme == "file").fullmatch
            chosen = [shard for at, shard in by_place.items() if at.scheme == place.scheme and matches(at.path)]
        else:
            chosen = [by_place[place]] if place in by_place else []
        if not chosen:
            reason = f"no shard of the index {safe_url(index_url)} matches{hint_of(pattern)}"
            raise NoMatchError(safe_url(pattern), reason)
        found += sorted(chosen, key=lambda shard: shard.url)
    return found


def _line(index_url: str, indexed: IndexedShard) -> dict[str, Any]:
    shard = indexed.shard
    url = _relative(lasting_url(index_url), lasting_url(shard.url))
    fields = {"url": url, "nbytes": shard.nbytes, "records": indexed.records}
    named = {name: value for name, value in fields.items() if value is not None}
    return {**named, "version": shard.version} if shard.version else named


def _relative(index_url: str, url: str) -> str:
    folder = _folder(index_url)
    name = url[len(folder) :]
    return name if folder and url.startswith(folder) and _is_below(name) else url


def _folder(index_url: str) -> str:
    """Return the prefix of relative URLs in an index: the folder of the index, or "" for the current directory."""
    path = index_url.partition("?")[0] if is_http(split_url(index_url).scheme) else index_url
    head, slash, _ = path.rpartition("/")
    return head + slash


def _is_below(name: str) -> bool:
    is_relative = not name.startswith(("/", "~")) and not _SCHEME.match(name)
    return is_relative and not {".", "..", ""} & set(name.split("/"))


def _lines(index_url: str, content: bytes | memoryview) -> Iterator[tuple[int, Any]]:
    check_nbytes(index_url, len(content))
    for number, line in enumerate(bytes(content).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
            kind = kind_of(bytes(content[:START_NBYTES])) if number == 1 else None
            found = "" if kind is None else f": this is {kind.name}, not an index file"
            raise IndexFileError(safe_url(index_url), number, f"is not JSON{found}") from None


def _header(index_url: str, header: Any) -> int:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise IndexFileError(safe_url(index_url), 1, f"not an index file: the header lacks format {FORMAT!r}")
    if header.get("version") != VERSION:
        raise IndexFileError(safe_url(index_url), 1, f"version must be {VERSION}, got {header.get('version')!r}")
    count = _number(index_url, 1, header, "shards")
    if count is None:
        raise IndexFileError(safe_url(index_url), 1, "the header lacks the number of shards")
    return count


def _indexed(index_url: str, number: int, line: Any) -> IndexedShard:
    if not isinstance(line, dict) or not isinstance(line.get("url"), str):
        raise IndexFileError(safe_url(index_url), number, "is not an object with a url")
    version = line.get("version", "")
    if not isinstance(version, str) or not _is_printable(version):
        raise IndexFileError(safe_url(index_url), number, "version must be a printable string")
    nbytes = _number(index_url, number, line, "nbytes")
    shard = ShardRef(_resolved(index_url, number, line["url"]), nbytes, version)
    return IndexedShard(shard, _number(index_url, number, line, "records"))


def _number(index_url: str, number: int, line: dict[str, Any], name: str) -> int | None:
    value = line.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise IndexFileError(safe_url(index_url), number, f"{name} must be an integer of at least 0")
    return value


def _resolved(index_url: str, number: int, url: str) -> str:
    """Return the absolute URL of a shard.

    Raises:
        IndexFileError: An index at ``index_url`` must not contain the URL ``url``.
    """
    if not url or not _is_printable(url):
        raise IndexFileError(safe_url(index_url), number, "url is empty or contains control characters")
    here = split_url(index_url)
    if _is_below(url):
        return _folder(index_url) + url
    if here.scheme == "file":
        if "://" in url or url.startswith("/"):
            return url
        raise IndexFileError(safe_url(index_url), number, "relative url leaves the folder of the index")
    there = split_url(url) if "://" in url and "::" not in url.partition("://")[0] else None
    if there is None:
        raise IndexFileError(safe_url(index_url), number, "relative url leaves the folder of the index")
    if there.scheme != here.scheme or (is_http(here.scheme) and _host(there.path) != _host(here.path)):
        raise IndexFileError(safe_url(index_url), number, "url is in another store than the index")
    return url


def _host(path: str) -> str:
    return split_bucket(path)[0].lower()


def _is_printable(text: str) -> bool:
    return _CONTROL.search(text) is None
