"""Split many complete small objects into records at once.

The objects lie one after another in one array. One pass over the array costs less than a framer for each object. Only
clean objects are split here. All others are left to a :class:`.RecordStream`, which decompresses, recovers and explains
damage. So this module never raises an error about data.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.compression import is_zlib_header
from aiostream_data.codecs.compression_by_suffix import FIRST_PAIRS as COMPRESSION_PAIRS
from aiostream_data.codecs.compression_by_suffix import by_name, may_begin_any, suffix_of
from aiostream_data.codecs.file_kinds import FIRST_PAIRS as KIND_PAIRS
from aiostream_data.codecs.file_kinds import START_NBYTES, kind_of
from aiostream_data.formats.base import LEFT, Format, SmallObjects, SplitsObjects
from aiostream_data.formats.stream import PROBE_NBYTES, Refuses, resolve
from aiostream_data.rows.records import VarColumn

Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]


def split_objects(
    format: Format,
    compression: str,
    urls: Sequence[str],
    values: Bytes,
    bounds: Indices,
    plain_suffixes: Container[str] = (),
    was_read: NDArray[np.bool_] | None = None,
) -> SmallObjects | None:
    """Split the objects ``values[bounds[i]:bounds[i + 1]]`` into records.

    Args:
        format: Format of the records.
        compression: ``compression`` argument of the source.
        urls: URL of each object. Its suffix can show the compression of an object that is too short for detection.
        values: Bytes of all objects; the records keep the array alive.
        bounds: Start of each object, and the end of the last one; int64, ascending.
        plain_suffixes: Suffixes of URLs for which longer objects of the source show that nothing is compressed.
        was_read: Mask of the objects whose bytes are in ``values``; None for all objects.

    Returns:
        The records; None if the format cannot split many objects, or if no object could be split.
    """
    if not isinstance(format, SplitsObjects) or compression.lower() not in ("", "auto"):
        return None
    is_plain = _certainly_plain(format, compression.lower() == "auto", urls, values, bounds, plain_suffixes)
    if was_read is not None:
        is_plain &= was_read
    rows = np.full(len(urls), LEFT, np.int64)
    columns = list(_split_runs(format, values, bounds, is_plain, rows))
    if not columns:
        return None
    if len(columns) == 1:
        return SmallObjects(columns[0], rows)
    starts = np.concatenate([column.starts for column in columns])
    lengths = np.concatenate([column.lengths for column in columns])
    return SmallObjects(VarColumn(values, starts, lengths, columns[0].kind), rows)


def _split_runs(
    format: SplitsObjects, values: Bytes, bounds: Indices, chosen: NDArray[np.bool_], rows: Indices
) -> Iterator[VarColumn]:
    """Split the chosen objects, in runs of adjacent ones. Yield their records, and set their numbers of rows."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    for first, stop in edges.reshape(-1, 2).tolist():
        yield from _split_run(format, values, bounds, rows, first, stop)


def _split_run(
    format: SplitsObjects, values: Bytes, bounds: Indices, rows: Indices, first: int, stop: int
) -> Iterator[VarColumn]:
    """Split the objects from ``first`` to ``stop``. If one is damaged, find it by bisection and leave it out."""
    found = format.split_objects(values, bounds[first : stop + 1])
    if found is not None:
        rows[first:stop] = found.rows
        yield found.column
    elif stop - first > 1:
        middle = (first + stop) // 2
        yield from _split_run(format, values, bounds, rows, first, middle)
        yield from _split_run(format, values, bounds, rows, middle, stop)


# -- detection: objects that may be compressed, or of another file kind, are left to the stream


def _certainly_plain(
    format: SplitsObjects, detects: bool, urls: Sequence[str], values: Bytes, bounds: Indices, suffixes: Container[str]
) -> NDArray[np.bool_]:
    """Return a mask of the objects that are certainly uncompressed and of no other known file kind."""
    starts, lengths = bounds[:-1], np.diff(bounds)
    if format.whole and not detects:
        return np.ones(len(starts), np.bool_)
    if format.split_proves_format:
        is_plain: NDArray[np.bool_] = lengths > 0
    else:
        is_plain = ~(_may_be_known(values, starts, lengths) | _may_be_tar(values, starts, lengths))
        if detects:
            is_plain &= lengths >= _LEAST_MARK_NBYTES
            for number in np.flatnonzero(is_plain & (lengths < PROBE_NBYTES)).tolist():
                is_plain[number] = by_name(urls[number]) is None
    for number in np.flatnonzero(~is_plain).tolist():
        first_bytes = values[bounds[number] : bounds[number + 1]][:START_NBYTES].tobytes()
        is_plain[number] = _is_plain(format, detects, urls[number], first_bytes, suffixes)
    return is_plain


def _is_plain(format: Format, detects: bool, url: str, first_bytes: bytes, suffixes: Container[str]) -> bool:
    """Return True if an object is certainly uncompressed and of no other known file kind."""
    if detects:
        if resolve("auto", format, first_bytes[:PROBE_NBYTES]):
            return False
        if len(first_bytes) < PROBE_NBYTES:
            may_be_compressed = may_begin_any(first_bytes) and suffix_of(url) not in suffixes
            if may_be_compressed or by_name(url) is not None:
                return False
    kind = kind_of(first_bytes)
    return kind is None or not isinstance(format, Refuses) or not format.refuses(kind)


def _may_be_known(values: Bytes, starts: Indices, lengths: Indices) -> NDArray[np.bool_]:
    """Return a mask of the objects whose first two bytes begin a known magic number, or a TFRecord length."""
    has_two = lengths >= 2
    at = np.where(has_two, starts, 0)
    if not len(values):
        return np.zeros(len(starts), np.bool_)
    after = np.minimum(at + 1, len(values) - 1)
    is_known: NDArray[np.bool_] = has_two & _MAGIC_STARTS[values[at].astype(np.int64) << 8 | values[after]]
    return is_known | _may_be_tfrecord(values, starts, lengths)


def _may_be_tfrecord(values: Bytes, starts: Indices, lengths: Indices) -> NDArray[np.bool_]:
    """Return a mask of the objects that may begin with a TFRecord length below 4 GiB."""
    found = lengths >= 12
    at = starts[found]
    found[found] = (values[at[:, None] + np.arange(4, 8)] == 0).all(1)
    return found


def _may_be_tar(values: Bytes, starts: Indices, lengths: Indices) -> NDArray[np.bool_]:
    """Return a mask of the objects that may begin with a tar header: an octal checksum at its place."""
    found = lengths >= _TAR_HEADER_NBYTES
    digits = values[starts[found][:, None] + _TAR_CHECKSUM]
    found[found] = _OCTAL[digits].all(1) & ~_BLANK[digits].all(1)
    return found


_LEAST_MARK_NBYTES: Final = 2
"""The first two bytes of an object show whether a known magic number may follow."""

_TAR_HEADER_NBYTES: Final = 512
_TAR_CHECKSUM: Final = np.arange(148, 156)


def _table(characters: bytes) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


_BLANK: Final = _table(b" \0")
_OCTAL: Final = _table(b" \0" + b"01234567")


def _magic_starts() -> NDArray[np.bool_]:
    """Return a table of all pairs of bytes that begin a known file kind or a compressed stream."""
    table: NDArray[np.bool_] = is_zlib_header(np.arange(1 << 16))
    table[[int.from_bytes(pair, "big") for pair in KIND_PAIRS | COMPRESSION_PAIRS]] = True
    return table


_MAGIC_STARTS: Final = _magic_starts()
