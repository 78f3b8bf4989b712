"""Many objects split in one pass have the records that a stream for each object yields."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import _native
from aiostream_data.codecs.compressors import compressor
from aiostream_data.errors import DataError
from aiostream_data.formats.base import LEFT, Format, SmallObjects
from aiostream_data.formats.csv import CsvFormat
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.json_lines import JsonLinesFormat
from aiostream_data.formats.small_objects import accepted, kinds_of_objects, split_objects
from aiostream_data.formats.small_streams import UnpackLimits, unpack
from aiostream_data.formats.stream import RecordStream
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.webdataset import WebDatasetFormat, WebDatasetFramer
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.rows.columns import VarColumn

FORMATS: list[Format] = [
    WholeFileFormat(),
    WholeFileFormat(max_record_nbytes=9),
    FixedLengthFormat(record_nbytes=3),
    FixedLengthFormat(record_nbytes=2, header_nbytes=1, footer_nbytes=2),
    TFRecordFormat(),
    TFRecordFormat(verify=False),
    TextFormat(),
    TextFormat(encoding=None),
    TextFormat(encoding="ascii", max_line_nbytes=5),
    TextFormat(encoding="utf-8-sig"),
    TextFormat(encoding="latin-1"),
    TextFormat(encoding="cp1252"),
    TextFormat(encoding="shift_jis"),
    TextFormat(encoding="latin-1", max_line_nbytes=5),
    CsvFormat(),
    CsvFormat(header=False, encoding="latin-1"),
    WebDatasetFormat(),
    WebDatasetFormat(verify=False),
]


ALL = 1 << 40
"""Number of rows that no object of a test has."""


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return b"".join(
        [length, struct.pack("<I", _native.masked_crc32c(length)), data, struct.pack("<I", _native.masked_crc32c(data))]
    )


def tar_archive() -> bytes:
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
        return file.getvalue()


def samples(names: list[str]) -> bytes:
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name in names:
                info = tarfile.TarInfo(name)
                info.size = len(name)
                archive.addfile(info, io.BytesIO(name.encode()))
        return file.getvalue()


def zstd(data: bytes) -> bytes:
    made = compressor("zstd")
    return made.compress(data) + made.flush()


def members(data: bytes) -> bytes:
    return gzip.compress(data[:5]) + gzip.compress(data[5:]) + bytes(3)


def frames(data: bytes) -> bytes:
    return zstandard.compress(data[:5]) + b"\x50\x2a\x4d\x18\x01\0\0\0?" + zstd(data[5:])


def with_garbage(data: bytes) -> bytes:
    return gzip.compress(data) + b"garbage"


COMPRESS: list[Callable[[bytes], bytes]] = [
    gzip.compress,
    members,
    with_garbage,
    zlib.compress,
    zstd,
    zstandard.compress,
    frames,
]

LINES = st.lists(
    st.sampled_from(
        [b"a", b"bc\n", b"\n", b"\r\n", b"\r", "\u00e9".encode(), b"\xc3", b"\xa9", b"\xef\xbb\xbf", b"x" * 6]
    ),
    max_size=8,
).map(b"".join)
RECORDS = st.lists(st.binary(max_size=20), max_size=4).map(lambda records: b"".join(map(framed, records)))
ARCHIVES = st.lists(st.sampled_from(["a.jpg", "a.cls", "b.jpg", "c.json"]), max_size=4).map(samples)
OBJECTS = st.one_of(
    LINES,
    ARCHIVES,
    ARCHIVES.map(lambda data: data[:-1024]),
    RECORDS,
    RECORDS.map(lambda data: data[:-1]),
    st.binary(max_size=24),
    st.one_of(LINES, RECORDS).flatmap(lambda data: st.sampled_from([compress(data) for compress in COMPRESS])),
    st.one_of(LINES, RECORDS).flatmap(
        lambda data: st.sampled_from([compress(data)[:-1] for compress in COMPRESS])  # cut short
    ),
    st.sampled_from(
        [
            b"\x1f\x8b\x08",
            b"(\xb5/\xfd",
            b"PAR1\x15",
            b"\x78\x9c",
            b"x" * 148 + b"0001234\0" + b"y" * 400,
            bytes(700),
            tar_archive(),
        ]
    ),
)

NAMES = st.sampled_from(["a", "a.gz", "a.txt", "a.zst"])


def streamed(format: Format, url: str, compression: str, data: bytes) -> list[bytes | str] | None:
    """Return the records of one object, or None if it is damaged."""
    stream = RecordStream(format, url, compression)
    columns: list[VarColumn] = []
    try:
        columns += stream.feed(np.frombuffer(data, np.uint8).copy(), 0)
        columns += stream.finish()
    except DataError:
        return None
    return [record for column in columns for record in column.elements()]


def together(objects: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return all objects in one array, behind some other bytes, and their bounds."""
    values = np.frombuffer(b"\n?" + b"".join(objects), np.uint8)
    return values, 2 + np.cumsum([0, *map(len, objects)], dtype=np.int64)


def split(
    format: Format, compression: str, objects: list[tuple[str, bytes]], suffixes: set[str], limits: UnpackLimits
) -> Iterator[tuple[list[tuple[str, bytes]], SmallObjects]]:
    """Split objects in as many steps as the limits need. Yield the objects of each step, and their records."""
    values, bounds = together([data for _, data in objects])
    kinds = kinds_of_objects(format, compression, [name for name, _ in objects], values, bounds, suffixes)
    if not kinds.compressed:
        yield objects, split_objects(format, [name for name, _ in objects], values, bounds, kinds.is_plain, ALL)
        return
    while objects:
        kinds = kinds_of_objects(format, compression, [name for name, _ in objects], values, bounds, suffixes)
        found = unpack(values, bounds, kinds, limits, lambda nbytes: np.empty(nbytes, np.uint8))
        count = len(found.is_ready)
        is_plain = found.is_ready & accepted(format, found.values, found.bounds)
        yield (
            objects[:count],
            split_objects(format, [name for name, _ in objects], found.values, found.bounds, is_plain, ALL),
        )
        objects, bounds = objects[count:], bounds[count:]


@given(
    st.sampled_from(FORMATS),
    st.sampled_from(["", "auto", "AUTO", "gzip", "zlib", "ZSTD"]),
    st.lists(st.tuples(NAMES, OBJECTS), max_size=6),
    st.sets(st.sampled_from(["", "gz", "txt", "zst"])),
    st.builds(
        UnpackLimits,
        nbytes=st.sampled_from([0, 20, 10_000]),
        object_nbytes=st.sampled_from([0, 30, 10_000]),
        window_nbytes=st.sampled_from([0, 1 << 22]),
    ),
)
def test_the_records_are_those_of_a_stream_for_each_object(
    format: Format,
    compression: str,
    objects: list[tuple[str, bytes]],
    plain_suffixes: set[str],
    limits: UnpackLimits,
) -> None:
    seen = 0
    for part, found in split(format, compression, objects, plain_suffixes, limits):
        seen += len(part)
        records, first = found.column.elements(), 0
        for rows, (name, data) in zip(found.rows.tolist(), part, strict=True):
            if rows != LEFT:
                assert records[first : first + rows] == streamed(format, name, compression, data)
                first += rows
        assert first == len(records)
    assert seen == len(objects)


@pytest.mark.parametrize("compress", [gzip.compress, members, zlib.compress, zstd, zstandard.compress, frames])
@pytest.mark.parametrize("format", [WholeFileFormat(), TextFormat(), FixedLengthFormat(record_nbytes=5)])
def test_sound_compressed_objects_are_split_at_once(format: Format, compress: Callable[[bytes], bytes]) -> None:
    objects = [("a", compress(b"line\n" * rows)) for rows in range(2000)]
    limits = UnpackLimits(nbytes=1 << 20, object_nbytes=1 << 20, window_nbytes=1 << 22)
    parts = list(split(format, "auto", objects, set(), limits))
    assert 3 < len(parts) < 50
    assert not any(LEFT in found.rows for _, found in parts)


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, zstd, zstandard.compress])
def test_an_object_that_grows_without_end_takes_no_more_memory_than_any_other(
    compress: Callable[[bytes], bytes],
) -> None:
    bomb = compress(bytes(200 << 20))
    limits = UnpackLimits(nbytes=1 << 20, object_nbytes=1 << 20, window_nbytes=1 << 22)
    objects = [("a", gzip.compress(b"line\n")), ("b", bomb), ("c", gzip.compress(b"line\n"))]
    tracemalloc.start()
    (found,) = [found for _, found in split(TextFormat(), "auto", objects, set(), limits)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.rows.tolist() == [1, LEFT, 1]
    assert peak < len(bomb) * 2 + (6 << 20)


@given(st.lists(ARCHIVES.filter(lambda data: len(data) > 1), min_size=1))
def test_each_archive_gets_a_framer(archives: list[bytes]) -> None:
    values, bounds = together(archives)
    is_plain = np.ones(len(archives), np.bool_)
    found = split_objects(WebDatasetFormat(), ["a"] * len(archives), values, bounds, is_plain, ALL)
    expected = [streamed(WebDatasetFormat(), "a", "", data) for data in archives]
    assert found.column.elements() == [record for records in expected for record in records or ()]
    assert found.rows.tolist() == [LEFT if records is None else len(records) for records in expected]
    assert found.column.values is values


def test_a_framer_gets_the_url_of_its_object() -> None:
    asked: list[str] = []

    class NamedFormat(WebDatasetFormat):
        def framer(self, url: str) -> WebDatasetFramer:
            asked.append(url)
            return super().framer(url)

    values, bounds = together([samples(["a.cls"])] * 3)
    found = split_objects(NamedFormat(), ["0", "1", "2"], values, bounds, np.array([True, False, True]), ALL)
    assert found.rows.tolist() == [1, LEFT, 1]
    assert asked == ["0", "2"]


@given(st.lists(st.lists(st.sampled_from([b"plain", b"more words", b""]), min_size=1).map(b"\n".join)))
def test_plain_text_is_split_at_once(objects: list[bytes]) -> None:
    objects = [b"text " + data for data in objects]
    values, bounds = together(objects)
    kinds = kinds_of_objects(TextFormat(), "auto", ["a"] * len(objects), values, bounds)
    found = split_objects(TextFormat(), ["a"] * len(objects), values, bounds, kinds.is_plain, ALL)
    assert len(found.rows) == len(objects)
    assert LEFT not in found.rows


@given(st.lists(st.lists(st.binary(max_size=9), min_size=1), min_size=1), st.data())
def test_one_damaged_object_leaves_its_neighbours_split(contents: list[list[bytes]], data: st.DataObject) -> None:
    objects = [b"".join(map(framed, records)) for records in contents]
    bad = data.draw(st.integers(0, len(objects) - 1))
    at = data.draw(st.integers(0, len(objects[bad]) - 1))
    objects[bad] = objects[bad][:at] + bytes([objects[bad][at] ^ 0xFF]) + objects[bad][at + 1 :]
    values, bounds = together(objects)
    kinds = kinds_of_objects(TFRecordFormat(), "auto", ["a"] * len(objects), values, bounds)
    found = split_objects(TFRecordFormat(), ["a"] * len(objects), values, bounds, kinds.is_plain, ALL)
    rows = [len(records) for records in contents]
    rows[bad] = LEFT
    assert found.rows.tolist() == rows


class OwnFormat(TextFormat):
    """A format that is split with a framer for each object."""

    split_proves_format = property()


@given(
    st.sampled_from(
        [TextFormat(), JsonLinesFormat(), CsvFormat(header=False), FixedLengthFormat(record_nbytes=2), OwnFormat()]
    ),
    st.lists(st.integers(0, 9), min_size=1),
    st.integers(1, 12),
)
def test_only_the_first_objects_are_split_if_all_have_too_many_rows(
    format: Format, counts: list[int], most_rows: int
) -> None:
    objects = [b"1\n" * count for count in counts]
    values, bounds = together(objects)
    is_plain = np.ones(len(objects), np.bool_)
    steps: list[list[int]] = []
    while sum(map(len, steps)) < len(objects):
        done = sum(map(len, steps))
        found = split_objects(format, ["a"] * len(objects), values, bounds[done:], is_plain[done:], most_rows)
        steps.append(found.rows.tolist())
        assert len(found.column) == sum(rows for rows in steps[-1] if rows != LEFT) <= most_rows
    rows = [rows for step in steps for rows in step]
    for found_rows, count in zip(rows, counts, strict=True):
        assert found_rows == count or (found_rows == LEFT and count + 1 > most_rows)
    assert len(steps) == 1 or sum(counts) + len(counts) > most_rows
