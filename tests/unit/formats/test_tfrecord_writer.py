"""Writing TFRecord files: they appear whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aiostream_data.errors import MissingExtraError, PlanError
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import TFRecordWriter
from aiostream_data.testing.formats import read_blocks

RECORDS = [b"one", b"", bytes(3 << 20), b"last"]


@pytest.mark.parametrize("compression", ["", "GZIP", "zlib", "zstd", "bz2", "xz", "lz4", "snappy"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_is_written_is_what_is_read(tmp_path: Path, compression: str, scheme: str) -> None:
    path = tmp_path / "x.tfrecord"
    with TFRecordWriter(f"{scheme}{path}", compression) as writer:
        for record in RECORDS:
            writer.write(record)
        assert not path.exists()
    for asked in (compression, "auto"):
        assert read_blocks(TFRecordFormat(), path.read_bytes(), [], 0, asked) == (RECORDS, None)


def test_writer_without_records_writes_an_empty_file(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "x.tfrecord"):
        pass
    assert (tmp_path / "x.tfrecord").read_bytes() == b""


def test_failure_inside_the_block_leaves_no_file_and_keeps_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"older")
    with pytest.raises(TypeError), TFRecordWriter(path) as writer:
        writer.write("not bytes")  # type: ignore[arg-type]
    assert [item.name for item in tmp_path.iterdir()] == ["x.tfrecord"]
    assert path.read_bytes() == b"older"


def test_closed_writer_refuses_records_and_closes_again(tmp_path: Path) -> None:
    writer = TFRecordWriter(tmp_path / "x.tfrecord")
    writer.close()
    writer.close()
    writer.discard()
    assert (tmp_path / "x.tfrecord").exists()
    with pytest.raises(ValueError, match="was closed"):
        writer.write(b"late")


def test_other_urls_are_written_through_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    with TFRecordWriter("memory://bucket/x.tfrecord", "gzip", {"skip_instance_cache": True}) as writer:
        for record in RECORDS:
            writer.write(record)
    stream = fsspec.filesystem("memory").cat_file("/bucket/x.tfrecord")
    assert read_blocks(TFRecordFormat(), stream, [], 0, "gzip") == (RECORDS, None)


def test_missing_fsspec_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[fsspec\]"):
        TFRecordWriter("s3://bucket/x.tfrecord")


def test_unknown_compression_is_refused_before_a_file_is_made(tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        TFRecordWriter(tmp_path / "x", "auto")
    assert not list(tmp_path.iterdir())
