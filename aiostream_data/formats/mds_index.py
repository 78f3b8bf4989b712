"""Index of an MDS data set: ``index.json``, which lists the shards of a folder and their columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Never

from aiostream_data.errors import MdsError
from aiostream_data.formats.mds_columns import MdsColumn
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import shorten

_COMPRESSIONS: Final = {"gz": "gzip", "zstd": "zstd"}
_VERSION: Final = 2


class MdsIndex(NamedTuple):
    """Content of an index.

    Attributes:
        columns: Columns of all shards.
        compression: Compression of all shards: "", "gzip" or "zstd".
        shards: The shards in the order of the index, with the sizes of their files.
        samples: Number of samples of each shard, by its URL. Shards for which the index tells none are absent.
    """

    columns: tuple[MdsColumn, ...]
    compression: str
    shards: list[ShardRef]
    samples: dict[str, int]


def parse_mds_index(url: str, content: bytes) -> MdsIndex:
    """Parse an index.

    Raises:
        MdsError: The content is no index of MDS shards of version 2, names a file outside of its folder, or its shards
            differ in their columns or their compression.
    """
    try:
        index = json.loads(content)
    except (ValueError, RecursionError):
        raise MdsError(url, None, "", "the index is not JSON") from None
    shards = index.get("shards") if isinstance(index, dict) else None
    if not isinstance(shards, list) or not shards or not all(isinstance(shard, dict) for shard in shards):
        raise MdsError(url, None, "", "the index lists no shards. Pass a folder with the index.json of MDS shards.")
    found = [_shard(url, number, shard) for number, shard in enumerate(shards)]
    columns, compression, _ = found[0]
    samples: dict[str, int] = {}
    for number, other in enumerate(found):
        count = shards[number].get("samples")
        if count is not None and (type(count) is not int or count < 0):
            _refuse(url, number, f"has an invalid number of samples, {shorten(repr(count))}")
        if count is not None:
            samples[other[2].url] = count
        if other[0] != columns:
            _refuse(url, number, f"has the columns {_named(other[0])}, but shard 0 has {_named(columns)}")
        if other[1] != compression:
            _refuse(url, number, f"has the compression {other[1] or None!r}, but shard 0 has {compression or None!r}")
    return MdsIndex(columns, compression, [shard for _, _, shard in found], samples)


def columns_of(described: Any) -> tuple[MdsColumn, ...] | None:
    """Return the columns that an index or the header of a shard describes; None if the description is invalid."""
    names, encodings, sizes = (
        described.get(name) if isinstance(described, dict) else None
        for name in ("column_names", "column_encodings", "column_sizes")
    )
    if not isinstance(names, list) or not isinstance(encodings, list) or not isinstance(sizes, list):
        return None
    are_text = all(isinstance(text, str) for text in (*names, *encodings))
    if not names or not len(names) == len(encodings) == len(sizes) or not are_text or len(set(names)) < len(names):
        return None
    columns = tuple(map(MdsColumn, names, encodings))
    known = [(column, size) for column, size in zip(columns, sizes, strict=True) if column.problem is None]
    return columns if all(column.nbytes == size for column, size in known) and all(map(_is_size, sizes)) else None


def _is_size(size: Any) -> bool:
    return size is None or (type(size) is int and size > 0)


def _shard(url: str, number: int, shard: dict[str, Any]) -> tuple[tuple[MdsColumn, ...], str, ShardRef]:
    if shard.get("format") != "mds" or shard.get("version") != _VERSION:
        told = shorten(repr((shard.get("format"), shard.get("version"))))
        _refuse(url, number, f"must have the format 'mds' and version {_VERSION}, got {told}")
    columns = columns_of(shard)
    if columns is None:
        _refuse(url, number, "has an invalid list of columns")
    compression, file = "", shard.get("raw_data")
    if shard.get("compression") is not None and shard.get("zip_data") is not None:
        name = str(shard["compression"]).partition(":")[0]
        if name not in _COMPRESSIONS:
            _refuse(url, number, f"has the compression {shorten(repr(name))}. Supported are gz and zstd")
        compression, file = _COMPRESSIONS[name], shard["zip_data"]
    basename = file.get("basename") if isinstance(file, dict) else None
    nbytes = file.get("bytes") if isinstance(file, dict) else None
    if not isinstance(basename, str) or type(nbytes) is not int or not 0 <= nbytes < 1 << 63:
        _refuse(url, number, "lacks the name or the size of its file")
    if not _is_below(basename):
        _refuse(url, number, f"has a file outside of the folder of the index: {shorten(repr(basename))}")
    return columns, compression, ShardRef(_folder(url) + basename, nbytes)


def _folder(url: str) -> str:
    path = url.partition("?")[0] if url.startswith(("http://", "https://")) else url
    head, slash, _ = path.rpartition("/")
    return head + slash


def _is_below(name: str) -> bool:
    parts = name.split("/")
    return name.isprintable() and not {"", ".", ".."} & set(parts) and not set(":\\~?#") & set(name)


def _named(columns: Sequence[MdsColumn]) -> str:
    return shorten(", ".join(f"{column.name}: {column.encoding}" for column in columns))


def _refuse(url: str, number: int, reason: str) -> Never:
    raise MdsError(url, None, "", f"shard {number} of the index {reason}")
