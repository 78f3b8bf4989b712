"""Many objects split in one pass have the records that a stream for each object yields."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import _native
from aiostream_data.errors import DataError
from aiostream_data.formats.base import LEFT, Format
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.small_objects import split_objects
from aiostream_data.formats.stream import RecordStream
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.rows.records import VarColumn

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
]


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


LINES = st.lists(
    st.sampled_from(
        [b"a", b"bc\n", b"\n", b"\r\n", b"\r", "\u00e9".encode(), b"\xc3", b"\xa9", b"\xef\xbb\xbf", b"x" * 6]
    ),
    max_size=8,
).map(b"".join)
RECORDS = st.lists(st.binary(max_size=20), max_size=4).map(lambda records: b"".join(map(framed, records)))
OBJECTS = st.one_of(
    LINES,
    RECORDS,
    RECORDS.map(lambda data: data[:-1]),
    st.binary(max_size=24),
    LINES.map(gzip.compress),
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


@given(
    st.sampled_from(FORMATS),
    st.sampled_from(["", "auto", "AUTO"]),
    st.lists(st.tuples(NAMES, OBJECTS), max_size=6),
    st.sets(st.sampled_from(["", "gz", "txt", "zst"])),
)
def test_the_records_are_those_of_a_stream_for_each_object(
    format: Format, compression: str, objects: list[tuple[str, bytes]], plain_suffixes: set[str]
) -> None:
    values, bounds = together([data for _, data in objects])
    found = split_objects(format, compression, [name for name, _ in objects], values, bounds, plain_suffixes)
    if found is None:
        return
    records, first = found.column.elements(), 0
    for rows, (name, data) in zip(found.rows.tolist(), objects, strict=True):
        if rows != LEFT:
            assert records[first : first + rows] == streamed(format, name, compression, data)
            first += rows
    assert first == len(records)


@given(st.lists(st.lists(st.sampled_from([b"plain", b"more words", b""]), min_size=1).map(b"\n".join)))
def test_plain_text_is_split_at_once(objects: list[bytes]) -> None:
    objects = [b"text " + data for data in objects]
    values, bounds = together(objects)
    found = split_objects(TextFormat(), "auto", ["a"] * len(objects), values, bounds)
    assert found is not None or not objects
    assert found is None or LEFT not in found.rows


@given(st.lists(st.lists(st.binary(max_size=9), min_size=1), min_size=1), st.data())
def test_one_damaged_object_leaves_its_neighbours_split(contents: list[list[bytes]], data: st.DataObject) -> None:
    objects = [b"".join(map(framed, records)) for records in contents]
    bad = data.draw(st.integers(0, len(objects) - 1))
    at = data.draw(st.integers(0, len(objects[bad]) - 1))
    objects[bad] = objects[bad][:at] + bytes([objects[bad][at] ^ 0xFF]) + objects[bad][at + 1 :]
    values, bounds = together(objects)
    found = split_objects(TFRecordFormat(), "auto", ["a"] * len(objects), values, bounds)
    rows = [len(records) for records in contents]
    rows[bad] = LEFT
    assert (found is None and len(objects) == 1) or (found is not None and found.rows.tolist() == rows)
