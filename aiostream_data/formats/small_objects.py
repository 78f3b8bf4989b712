"""Split many complete small objects into records at once.

The objects lie one after another in one array. One pass over the array costs less than a framer for each object.
Formats without such a pass get a framer for each object, but no task. Only clean objects are split here. All others are
left to a :class:`.RecordStream`, which recovers and explains damage. So this module never raises an error about data.
Compressed objects are first decompressed by :mod:`.small_streams`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.compression import Compression, canonical, is_zlib_header
from aiostream_data.codecs.compression_by_suffix import FIRST_PAIRS as COMPRESSION_PAIRS
from aiostream_data.codecs.compression_by_suffix import by_name, may_begin_any, suffix_of
from aiostream_data.codecs.file_kinds import FIRST_PAIRS as KIND_PAIRS
from aiostream_data.codecs.file_kinds import START_NBYTES, TFRECORD_NBYTES, kind_of, starts_tfrecord
from aiostream_data.formats.base import LATER, LEFT, Format, Framer, SmallObjects, SplitsObjects, splits_objects
from aiostream_data.formats.stream import PROBE_NBYTES, Refuses, resolve
from aiostream_data.rows.columns import VarColumn, concat_column

Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


_ALL: Final = 1 << 62
"""Number of rows that no object has."""


class ObjectKinds(NamedTuple):
    """Compression of many objects. An object that is in neither attribute is left to a :class:`.RecordStream`.

    Attributes:
        is_plain: Mask of the objects that are certainly uncompressed, and of no file kind that the format refuses.
        compressed: Compression of each compressed object, by its place.
    """

    is_plain: Mask
    compressed: Mapping[int, Compression]


def kinds_of_objects(
    format: Format,
    compression: str,
    urls: Sequence[str],
    values: Bytes,
    bounds: Indices,
    plain_suffixes: Container[str] = (),
    was_read: Mask | None = None,
) -> ObjectKinds:
    """Determine the compression of the objects ``values[bounds[i]:bounds[i + 1]]``.

    Args:
        format: Format of the records.
        compression: ``compression`` argument of the source.
        urls: URL of each object. Its suffix can show the compression of an object that is too short for detection.
        values: Bytes of all objects.
        bounds: Start of each object, and the end of the last one; int64, ascending.
        plain_suffixes: Suffixes of URLs for which longer objects of the source show that nothing is compressed.
        was_read: Mask of the objects whose bytes are in ``values``; None for all objects.
    """
    was_read = np.ones(len(urls), np.bool_) if was_read is None else was_read
    if compression.lower() == "auto":
        return _detected(format, urls, values, bounds, plain_suffixes, was_read)
    if asked := canonical(compression):
        return ObjectKinds(np.zeros(len(urls), np.bool_), dict.fromkeys(np.flatnonzero(was_read).tolist(), asked))
    return ObjectKinds(was_read & accepted(format, values, bounds), {})


def split_objects(
    format: Format, urls: Sequence[str], values: Bytes, bounds: Indices, is_plain: Mask, most_rows: int
) -> SmallObjects:
    """Split the uncompressed objects ``values[bounds[i]:bounds[i + 1]]`` for which ``is_plain`` is True into records.

    An object that may have more than ``most_rows`` records is left to its reader. If all objects together may have
    more, only the first ones are split.

    Args:
        urls: URL of each object, or of more objects, for the framers.
        values: Bytes of all objects; the records keep the array alive.

    Returns:
        The records of the first objects, at least of one.
    """
    rows = np.full(len(is_plain), LEFT, np.int64)
    if splits_objects(format):
        found = format.split_objects(values, bounds, most_rows) if len(rows) and is_plain.all() else None
        if found is not None:
            return found
        if int(bounds[-1] - bounds[0]) + len(rows) > most_rows:
            expected = np.where(is_plain, format.most_rows(values, bounds), 0)
            stop = fitting(expected, most_rows)
            rows, is_plain = rows[:stop], (is_plain & (expected <= most_rows))[:stop]
    columns = list(_split_runs(format, urls, values, bounds, is_plain, rows, most_rows))
    rows = rows[rows != LATER]
    if not columns:
        return SmallObjects(VarColumn(values, bounds[:0], bounds[:0]), rows)
    if len(columns) == 1:
        return SmallObjects(columns[0], rows)
    if any(column.values is not values for column in columns):
        return SmallObjects(cast(VarColumn, concat_column(columns)), rows)
    starts = np.concatenate([column.starts for column in columns])
    lengths = np.concatenate([column.lengths for column in columns])
    column = VarColumn(values, starts, lengths, columns[0].kind)
    return SmallObjects(columns[0].gathered(column, columns, np.concatenate), rows)


def fitting(rows: Indices, most_rows: int) -> int:
    """Return how many of the first objects have at most ``most_rows`` rows together. It is at least one.

    Args:
        rows: Number of rows of each object. An object of more than ``most_rows`` rows does not count.
    """
    taken = np.cumsum(np.where(rows <= most_rows, rows, 0))
    return max(1, int(np.searchsorted(taken, most_rows, side="right")))


def accepted(format: Format, values: Bytes, bounds: Indices) -> Mask:
    """Return a mask of the uncompressed objects that are of no file kind that the format refuses."""
    starts, lengths = bounds[:-1], np.diff(bounds)
    is_accepted = np.ones(len(starts), np.bool_)
    if format.whole or _proves_format(format):
        return is_accepted
    may_be_refused = _may_be_known(values, starts, lengths) | _may_be_tar(values, starts, lengths)
    for number in np.flatnonzero(may_be_refused).tolist():
        is_accepted[number] = _accepts(format, _first_bytes(values, bounds, number))
    return is_accepted


def _proves_format(format: Format) -> bool:
    """Return True if only objects of this format can be split."""
    return splits_objects(format) and format.split_proves_format


def _split_runs(
    format: Format, urls: Sequence[str], values: Bytes, bounds: Indices, chosen: Mask, rows: Indices, most_rows: int
) -> Iterator[VarColumn]:
    """Split the chosen objects, in runs of adjacent ones. Yield their records, and set their numbers of rows."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    for first, stop in edges.reshape(-1, 2).tolist():
        if splits_objects(format):
            yield from _split_run(format, values, bounds, rows, first, stop)
        else:
            yield from _split_each(format, urls, values, bounds, rows, first, stop, most_rows)
        if rows[-1] == LATER:
            return


def _split_run(
    format: SplitsObjects, values: Bytes, bounds: Indices, rows: Indices, first: int, stop: int
) -> Iterator[VarColumn]:
    """Split the objects from ``first`` to ``stop``. If one is damaged, find it by bisection and leave it out."""
    found = format.split_objects(values, bounds[first : stop + 1], _ALL)
    if found is not None:
        rows[first:stop] = found.rows
        yield found.column
    elif stop - first > 1:
        middle = (first + stop) // 2
        yield from _split_run(format, values, bounds, rows, first, middle)
        yield from _split_run(format, values, bounds, rows, middle, stop)


def _split_each(
    format: Format,
    urls: Sequence[str],
    values: Bytes,
    bounds: Indices,
    rows: Indices,
    first: int,
    stop: int,
    most_rows: int,
) -> Iterator[VarColumn]:
    """Split the objects from ``first`` to ``stop`` with a framer for each of them. Leave out objects with a problem."""
    left = most_rows - int(rows[rows > 0].sum())
    for number in range(first, stop):
        start, end = bounds[number : number + 2].tolist()
        data = values[start:end]
        columns = _records_of(format.framer(urls[number]), data, most_rows)
        if columns is None:
            continue
        count = sum(map(len, columns))
        if count > left:
            rows[number:] = LATER
            return
        left -= count
        rows[number] = count
        for column in columns:
            if len(column):
                yield _placed(column, values, data, start)


def _records_of(framer: Framer, data: Bytes, most_rows: int) -> list[VarColumn] | None:
    """Return the records of one object; None if it has a problem, or more than ``most_rows`` records."""
    columns: list[VarColumn] = []
    count = 0
    try:
        for column in chain(framer.feed(data, 0, most_rows), _finished(framer)):
            columns.append(column)
            count += len(column)
            if count > most_rows:
                return None
    except Exception:  # noqa: BLE001 - the reader of this object raises it
        return None
    return columns


def _finished(framer: Framer) -> Iterator[VarColumn]:
    yield from framer.finish()


def _placed(column: VarColumn, values: Bytes, data: Bytes, start: int) -> VarColumn:
    """Let a column refer to the array of all objects instead of ``data``, which begins at index ``start`` of it."""
    return VarColumn(values, column.starts + start, column.lengths, column.kind) if column.values is data else column


# -- detection: objects that may be compressed, or of another file kind


def _detected(
    format: Format, urls: Sequence[str], values: Bytes, bounds: Indices, suffixes: Container[str], was_read: Mask
) -> ObjectKinds:
    starts, lengths = bounds[:-1], np.diff(bounds)
    if _proves_format(format):
        is_plain = was_read & (lengths > 0) & ~_may_be_compressed(values, starts, lengths)
    else:
        is_plain = was_read & (lengths >= _LEAST_MARK_NBYTES)
        is_plain &= ~(_may_be_known(values, starts, lengths) | _may_be_tar(values, starts, lengths))
        for number in np.flatnonzero(is_plain & (lengths < PROBE_NBYTES)).tolist():
            is_plain[number] = by_name(urls[number]) is None
    compressed: dict[int, Compression] = {}
    for number in np.flatnonzero(was_read & ~is_plain).tolist():
        first_bytes = _first_bytes(values, bounds, number)
        found = _compression_of(format, urls[number], first_bytes, suffixes)
        if found:
            compressed[number] = found
        else:
            is_plain[number] = found is not None and _accepts(format, first_bytes)
    return ObjectKinds(is_plain, compressed)


def _compression_of(format: Format, url: str, first_bytes: bytes, suffixes: Container[str]) -> Compression | None:
    """Return the compression of an object, or None if its first bytes do not show the compression."""
    found = resolve("auto", format, first_bytes[:PROBE_NBYTES])
    if not found and len(first_bytes) < PROBE_NBYTES:
        may_be_compressed = may_begin_any(first_bytes) and suffix_of(url) not in suffixes
        if may_be_compressed or by_name(url) is not None:
            return None
    return found


def _accepts(format: Format, first_bytes: bytes) -> bool:
    kind = kind_of(first_bytes)
    return kind is None or not isinstance(format, Refuses) or not format.refuses(kind)


def _first_bytes(values: Bytes, bounds: Indices, number: int) -> bytes:
    return values[bounds[number] : bounds[number + 1]][:START_NBYTES].tobytes()


def _may_be_compressed(values: Bytes, starts: Indices, lengths: Indices) -> Mask:
    """Return a mask of the objects whose first two bytes begin a compressed stream."""
    return _begins_with(_COMPRESSED_STARTS, values, starts, lengths)


def _may_be_known(values: Bytes, starts: Indices, lengths: Indices) -> Mask:
    """Return a mask of the objects that begin like a file of a known kind other than tar."""
    return _begins_with(_MAGIC_STARTS, values, starts, lengths) | _begins_tfrecord(values, starts, lengths)


def _begins_with(pairs: Mask, values: Bytes, starts: Indices, lengths: Indices) -> Mask:
    """Return a mask of the objects of at least two bytes whose first two bytes are in the table ``pairs``."""
    if not len(values):
        return np.zeros(len(starts), np.bool_)
    has_two = lengths >= 2
    at = np.where(has_two, starts, 0)
    after = np.minimum(at + 1, len(values) - 1)
    is_known: Mask = has_two & pairs[values[at].astype(np.int64) << 8 | values[after]]
    return is_known


def _begins_tfrecord(values: Bytes, starts: Indices, lengths: Indices) -> Mask:
    """Return a mask of the objects that begin as a TFRecord file: with a length below 4 GiB and its checksum."""
    found = lengths >= TFRECORD_NBYTES
    found[found] = (values[starts[found][:, None] + np.arange(4, 8)] == 0).all(1)
    heads = values[starts[found][:, None] + np.arange(TFRECORD_NBYTES)].tobytes()
    found[found] = [starts_tfrecord(heads[at : at + TFRECORD_NBYTES]) for at in range(0, len(heads), TFRECORD_NBYTES)]
    return found


def _may_be_tar(values: Bytes, starts: Indices, lengths: Indices) -> Mask:
    """Return a mask of the objects that may begin with a tar header: an octal checksum at its place."""
    found = lengths >= _TAR_HEADER_NBYTES
    digits = values[starts[found][:, None] + _TAR_CHECKSUM]
    found[found] = _OCTAL[digits].all(1) & ~_BLANK[digits].all(1)
    return found


_LEAST_MARK_NBYTES: Final = 2
"""The first two bytes of an object show whether a known magic number may follow."""

_TAR_HEADER_NBYTES: Final = 512
_TAR_CHECKSUM: Final = np.arange(148, 156)


def _table(characters: bytes) -> Mask:
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


_BLANK: Final = _table(b" \0")
_OCTAL: Final = _table(b" \0" + b"01234567")


def _starts(pairs: Iterable[bytes]) -> Mask:
    """Return a table of all pairs of bytes that are in ``pairs`` or begin a zlib stream."""
    table: Mask = is_zlib_header(np.arange(1 << 16))
    table[[int.from_bytes(pair, "big") for pair in pairs]] = True
    return table


_COMPRESSED_STARTS: Final = _starts(COMPRESSION_PAIRS)
_MAGIC_STARTS: Final = _starts(KIND_PAIRS | COMPRESSION_PAIRS)
