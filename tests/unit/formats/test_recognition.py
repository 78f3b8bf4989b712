"""Formats are recognized by names, by first bytes, and by the files in a folder."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zlib

import numpy as np
import pyarrow as pa
import pytest
from array_records import array_record
from pyarrow import ipc, parquet

from aiostream_data.codecs import file_kinds
from aiostream_data.codecs.compression import COMPRESSIONS
from aiostream_data.codecs.compressors import compressor
from aiostream_data.formats import recognition as r
from aiostream_data.formats.tfrecord_writer import frame


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("train.csv", r.CSV),
        ("TRAIN.CSV.GZ", r.CSV),
        ("s3://bucket/a.b/part-00000.tsv.zst", r.TSV),
        ("a.tab", r.TSV),
        ("a.ndjson", r.JSON_LINES),
        ("a.jsonl.zz", r.JSON_LINES),
        ("a.tfrecord", r.TFRECORD),
        ("train.tfrecord-00001-of-00010", r.TFRECORD),
        ("train.tfrecords.gz", r.TFRECORD),
        ("mnist-train.tfrecord-00000-of-00001.zst", r.TFRECORD),
        ("a.array_record", r.ARRAY_RECORD),
        ("a.arrayrecord", r.ARRAY_RECORD),
        ("mnist-train.array_record-00000-of-00001", r.ARRAY_RECORD),
        ("a.tar", r.TAR),
        ("a.tar.gz", r.TAR),
        ("a.tgz", r.TAR),
        ("a.pq", r.PARQUET),
        ("a.feather", r.ARROW),
        ("a.npz", r.NUMPY),
        ("a.JPEG", r.IMAGES),
        ("a.txt", r.TEXT),
        ("https://host/a.csv?token=x.parquet", r.CSV),
        ("a.json", None),
        ("csv", None),
        ("a", None),
        ("", None),
        ("a.gz", None),
    ],
)
def test_a_name_suggests_a_format(name: str, format: r.FileFormat | None) -> None:
    assert r.by_name(name) is format


def archive(name: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    return file.getvalue()


def table(write: str) -> bytes:
    file = io.BytesIO()
    rows = pa.table({"a": [1, 2]})
    if write == "parquet":
        parquet.write_table(rows, file)
    else:
        with ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
    return file.getvalue()


def saved(save: str) -> bytes:
    file = io.BytesIO()
    getattr(np, save)(file, np.arange(3))
    return file.getvalue()


CONTENT = {
    "TFRecord": (frame(b"abc"), r.TFRECORD),
    "tar": (archive("a/b.txt"), r.TAR),
    "Parquet": (table("parquet"), r.PARQUET),
    "Arrow": (table("arrow"), r.ARROW),
    "npy": (saved("save"), r.NUMPY),
    "npz": (saved("savez"), r.NUMPY),
    "JSON lines": (b'{"a": 1}\n{"a": 2}\n', r.JSON_LINES),
    "one JSON record": (b'{"a": 1}', r.JSON_LINES),
    "JSON lines behind a mark": (b'\xef\xbb\xbf{"a": 1}\n', r.JSON_LINES),
    "a JSON document": (b'{\n  "a": 1\n}\n', r.TEXT),
    "a JSON array": (b"[1, 2]\n", r.TEXT),
    "text": ("grün\nblau\n".encode(), r.TEXT),
    "long text": (("a" + "ü" * 10_000).encode(), r.TEXT),
    "JPEG": (b"\xff\xd8\xff\xe0\x00\x10JFIF", r.IMAGES),
}


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_first_bytes_show_a_format_compressed_or_not(name: str, compression: str) -> None:
    content, format = CONTENT[name]
    if compression:
        made = compressor(compression)  # type: ignore[arg-type]
        content = made.compress(content) + made.flush()
    assert r.by_start(content[: r.START_NBYTES]) is format


def test_a_format_that_nobody_reads_is_named() -> None:
    assert r.by_start(b"\x89HDF\r\n\x1a\n" + bytes(100)) is r.HDF5
    assert r.by_start(array_record([[b"a"]])) is r.ARRAY_RECORD
    assert r.by_start(b"PK\x03\x04\x14\0" + bytes(24) + b"a.txt" + bytes(40)) is file_kinds.ZIP


@pytest.mark.parametrize("content", [b"", b" \n", bytes(100), b"\x80abc", b"abc\x01\n", b"ab\xff\xfecd" * 10])
def test_bytes_that_are_no_text_are_unknown(content: bytes) -> None:
    assert r.by_start(content) is None


def test_any_bytes_are_recognized_or_not_without_an_error() -> None:
    drawn = random.Random(5)
    starts = [content for content, _ in CONTENT.values()]
    starts += [gzip.compress(content) for content in starts] + [zlib.compress(b"a" * 10**6)]
    for _ in range(2000):
        content = bytearray(drawn.choice(starts)[: drawn.randrange(1, 3000)])
        for _ in range(drawn.randrange(4)):
            content[drawn.randrange(len(content))] = drawn.randrange(256)
        r.by_start(bytes(content))


def test_a_bomb_is_not_decompressed_whole() -> None:
    assert r.by_start(zlib.compress(b"a" * 10**8)[: r.START_NBYTES]) is r.TEXT


def test_a_record_that_nests_deeply_is_text() -> None:
    assert r.by_start(b"[" * 4000 + b"\n") is r.TEXT
    assert r.by_start(json.dumps({"a": [[[[1]]]]}).encode()) is r.JSON_LINES


@pytest.mark.parametrize(
    ("paths", "layout"),
    [
        (["index.json", "shard.00000.mds"], r.MDS),
        (["index.json", "shard.00000.mds.zstd"], r.MDS),
        (["dataset_info.json", "features.json", "a-train.tfrecord-00000-of-00001"], r.TFDS),
        (["dataset_info.json", "a.jsonl"], None),
        (["cat/1.jpg", "dog/2.PNG", "README.md", ".hidden/x"], r.IMAGE_FOLDER),
        (["train/cat/1.jpg"], r.IMAGE_FOLDER),
        (["1.jpg", "dog/2.png"], None),
        (["cat/1.jpg", "labels.csv"], None),
        (["a.csv", "b.csv"], None),
        (["index.json", "a.csv"], None),
        ([], None),
    ],
)
def test_the_files_of_a_folder_show_its_layout(paths: list[str], layout: r.FileFormat | None) -> None:
    assert r.folder_layout(paths) is layout


def test_files_beside_the_data_are_left_out() -> None:
    names = ["_SUCCESS", ".part.crc", "README.md", "LICENSE", "a/manifest.json", "a.csv", "b.csv", "c.bin"]
    assert r.formats_of(names) == {r.CSV: ["a.csv", "b.csv"], None: ["c.bin"]}
