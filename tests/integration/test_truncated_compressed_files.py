"""Compressed files of which only the first bytes are left, read with ``compression="auto"``."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import aiostream_data as asd
from aiostream_data.codecs.compressors import compressor
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.tfrecord_writer import frame

TEXT = b"".join(b"line %d\n" % number for number in range(40))
RECORDS = b"".join(frame(b"record %d" % number) for number in range(40))


def zstd(data: bytes) -> bytes:
    made = compressor("zstd")
    return made.compress(data) + made.flush()


def lz4(data: bytes) -> bytes:
    made = compressor("lz4")
    return made.compress(data) + made.flush()


def snappy(data: bytes) -> bytes:
    made = compressor("snappy")
    return made.compress(data) + made.flush()


def zlib_best(data: bytes) -> bytes:
    return zlib.compress(data, 9)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstd,
    "zz": zlib.compress,
    "zlib": zlib_best,
    "bz2": partial(bz2.compress, compresslevel=1),  # blocks of 100 kB
    "xz": lzma.compress,
    "lz4": lz4,
    "sz": snappy,
}
SOURCES: dict[str, Callable[[Any], asd.Dataset[Any]]] = {
    "text": lambda files: asd.Dataset.from_text(files, encoding=None),
    "str": lambda files: asd.Dataset.from_text(files),
    "tfrecord": lambda files: asd.Dataset.from_tfrecord(files),
    "fixed": lambda files: asd.Dataset.from_fixed_length(files, 1, compression="auto"),
    "files": lambda files: asd.Dataset.from_files(files, compression="auto"),
}


def content(source: str) -> bytes:
    return RECORDS if source == "tfrecord" else TEXT


LONG_ROWS = [sha256(b"%d" % number).hexdigest().encode() for number in range(6000)]
LONG_TEXT = b"".join(row + b"\n" for row in LONG_ROWS)
LONG_RECORDS = b"".join(map(frame, LONG_ROWS))
CUT: dict[str, tuple[bytes, int, Callable[..., asd.Dataset[Any]]]] = {
    "text": (LONG_TEXT, 65, lambda file, **options: asd.Dataset.from_text(file, **options)),
    "text of bytes": (LONG_TEXT, 65, lambda file, **options: asd.Dataset.from_text(file, encoding=None, **options)),
    "verified text": (LONG_TEXT, 65, lambda file, **options: asd.Dataset.from_text(file, verify=True, **options)),
    "tfrecord": (LONG_RECORDS, 80, lambda file, **options: asd.Dataset.from_tfrecord(file, **options)),
    "fixed length": (
        LONG_TEXT,
        65,
        lambda file, **options: asd.Dataset.from_fixed_length(file, 65, compression="auto", **options),
    ),
    "files": (
        LONG_TEXT,
        len(LONG_TEXT),
        lambda file, **options: asd.Dataset.from_files(file, compression="auto", **options),
    ),
}
"""Content of a file, bytes of each record of it, and how it is read."""


def error_of(dataset: asd.Dataset[Any]) -> CorruptRecordError:
    with pytest.raises(CorruptRecordError) as caught:
        list(dataset)
    return caught.value


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("suffix", COMPRESS)
def test_first_bytes_of_a_file_that_is_compressed_by_its_name_are_an_error(
    tmp_path: Path, suffix: str, source: str
) -> None:
    path = tmp_path / f"part.{suffix}"
    whole = COMPRESS[suffix](content(source))
    for nbytes in (0, 1, 2, 3, 4, 5, 9, 17):
        path.write_bytes(whole[:nbytes])
        error = error_of(SOURCES[source](path))
        assert "cut short" in error.reason
        assert error.url.endswith(path.name)
    path.write_bytes(b"")
    assert f"its name ends with .{suffix}" in str(error_of(SOURCES[source](path)))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("cut", [0, 2])
def test_first_bytes_of_a_file_among_compressed_ones_are_an_error(
    tmp_path: Path, cut: int, suffix: str, source: str
) -> None:
    whole = COMPRESS[suffix](content(source))
    is_text = suffix == "bz2" and source in ("text", "str")  # the first bytes of a bz2 stream are letters
    for nbytes in (0, 1, 2, 3 if is_text else 4):
        for number in range(3):
            (tmp_path / f"part.{number}").write_bytes(whole[:nbytes] if number == cut else whole)
        error = error_of(SOURCES[source](tmp_path / "*"))
        assert error.url.endswith(f"part.{cut}")
        if nbytes == 0:
            assert "other shards of its source are" in error.reason


def test_an_empty_file_named_by_a_data_set_is_compared_with_the_others_it_names(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(gzip.compress(TEXT) if name != "b" else b"")
    urls = asd.Dataset.from_tensor_slices([str(tmp_path / name) for name in "abc"])
    assert error_of(asd.Dataset.from_text(urls)).url.endswith("/b")


@pytest.mark.parametrize("source", ["text", "str", "files"])
@pytest.mark.parametrize("short", [b"", b"x", b"(", b"1\x1f", b"hi"])
def test_short_plain_files_are_read_as_they_are(tmp_path: Path, short: bytes, source: str) -> None:
    for number in range(3):
        (tmp_path / f"plain-{number}.txt").write_bytes(short if number == 1 else TEXT)
    (tmp_path / "zipped.txt.gz").write_bytes(gzip.compress(TEXT))
    read = list(SOURCES[source](tmp_path / "*"))
    if source == "files":
        assert [element["data"] for element in read] == [TEXT, short, TEXT, TEXT]
    else:
        lines = [short] * bool(short)
        given = [line.encode() if isinstance(line, str) else line for line in read]
        assert given == [*TEXT.splitlines(), *lines, *TEXT.splitlines(), *TEXT.splitlines()]


def test_a_source_of_empty_files_alone_has_no_rows(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"part-{number}").write_bytes(b"")
    assert list(asd.Dataset.from_text(tmp_path / "*")) == []


def test_short_text_in_a_file_with_the_name_of_a_compressed_one_is_text(tmp_path: Path) -> None:
    (tmp_path / "unpacked.gz").write_bytes(b"hello\n")
    assert list(asd.Dataset.from_text(tmp_path / "unpacked.gz")) == ["hello"]


def test_an_empty_file_is_read_as_plain_when_asked_to(tmp_path: Path) -> None:
    (tmp_path / "empty.gz").write_bytes(b"")
    assert list(asd.Dataset.from_text(tmp_path / "empty.gz", compression="")) == []


def test_a_compressed_stream_of_nothing_has_no_rows(tmp_path: Path) -> None:
    for suffix, compress in COMPRESS.items():
        (tmp_path / f"nothing.{suffix}").write_bytes(compress(b""))
        (tmp_path / f"nothing-{suffix}").write_bytes(compress(b""))
    assert list(asd.Dataset.from_text(tmp_path / "*")) == []


@pytest.mark.parametrize("source", CUT)
@pytest.mark.parametrize("suffix", COMPRESS)
def test_an_error_and_the_log_name_the_same_byte_where_the_first_lost_record_begins(
    tmp_path: Path, suffix: str, source: str
) -> None:
    content, record_nbytes, read = CUT[source]
    packed = COMPRESS[suffix](content)
    (tmp_path / "x").write_bytes(packed[: len(packed) * 2 // 3 + 5])
    given: list[Any] = []
    with pytest.raises(CorruptRecordError, match="cut short") as caught:
        given.extend(read(tmp_path / "x"))
    left = read(tmp_path / "x", on_error=asd.Quarantine(tmp_path / "log"))
    assert list(left) == given
    (entry,) = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert entry["offset"] == caught.value.offset == len(given) * record_nbytes
    assert entry["error"].endswith(str(caught.value))
    assert source != "text" or re.search(r"cut short, after \d{6} decompressed bytes", entry["error"])
    assert (len(given) > 0) == (source not in ("verified text", "files"))
