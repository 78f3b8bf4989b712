"""A file of another format is recognised by its first bytes, and the error says what reads it instead."""

from __future__ import annotations

import gzip
import io
import random
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from array_records import array_record
from PIL import Image

import aiostream_data as asd
from aiostream_data.codecs.file_kinds import START_NBYTES, kind_of
from aiostream_data.errors import CorruptRecordError, IndexFileError
from aiostream_data.formats.tfrecord_writer import frame


def tar(kind: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = 12
        archive.addfile(member, io.BytesIO(b"line\nline\nx\n"))
    return out.getvalue()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.txt", "line\n" * 30)
    return out.getvalue()


def sqlite() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table labels (name text)")
        return connection.serialize()


def npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(64))
    return out.getvalue()


def encoded(kind: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 8)).save(out, kind)
    return out.getvalue()


def stream() -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, pa.schema([("id", pa.int64())])) as writer:
        writer.write(pa.record_batch({"id": [1, 2, 3]}))
    return out.getvalue()


FILES = {
    "tar archive": tar(),
    "Parquet file": b"PAR1\x15\x04\x15\x20text\n" * 64,
    "Arrow file": b"ARROW1\0\0" + b"\xff\xff\xff\xff\n" * 64,
    "HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(1016),
    "ArrayRecord file": array_record([[b"record"]]),
    "zip archive": zipped(),
    "NumPy file": npy(),
    "PNG image": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(500),
    "JPEG image": b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(501),
    "GIF image": b"GIF89a\x01\0\x01\0" + bytes(502),
    "WebP image": encoded("WEBP"),
    "BMP image": encoded("BMP"),
    "TIFF image": encoded("TIFF"),
    "Arrow stream": stream(),
    "PDF document": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n" + bytes(501),
    "sound file": b"RIFF\x24\x08\0\0WAVEfmt \x10\0\0\0" + bytes(501),
    "video": b"\0\0\0\x18ftypmp42" + bytes(501),
    "ORC file": b"ORC\x08\x03" + bytes(501),
    "Avro file": b"Obj\x01\x04\x14avro.codec" + bytes(501),
    "SQLite database": sqlite(),
    "7z archive": b"7z\xbc\xaf\x27\x1c\0\x04" + bytes(501),
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
}
CURES = {
    "tar archive": "from_webdataset",
    "Parquet file": "from_parquet",
    "Arrow file": "from_arrow",
    "HDF5 file": "from_hdf5()",
    "ArrayRecord file": "from_array_record()",
    "zip archive": "zipfile",
    "NumPy file": "from_npy",
    "PNG image": "from_files",
    "JPEG image": "from_files",
    "GIF image": "from_files",
    "WebP image": "from_files",
    "BMP image": "from_files",
    "TIFF image": "from_files",
    "Arrow stream": "from_arrow()",
    "PDF document": "from_files",
    "sound file": "from_files",
    "video": "from_files",
    "ORC file": "pyarrow",
    "Avro file": "fastavro",
    "SQLite database": "sqlite3",
    "7z archive": "unpack",
    "Git LFS pointer": "git lfs pull",
}
UNCERTAIN = ("image", "stream")
"""Ends of the names of kinds that only a wrong size refutes as records of one length."""

Read = Callable[[Path], "asd.Dataset[bytes] | asd.Dataset[str]"]
READERS: dict[str, Read] = {
    "from_tfrecord": lambda path: asd.Dataset.from_tfrecord(path),
    "from_text": lambda path: asd.Dataset.from_text(path),
    "from_text of bytes": lambda path: asd.Dataset.from_text(path, encoding=None),
    "from_fixed_length": lambda path: asd.Dataset.from_fixed_length(path, 7 if path.name.endswith(UNCERTAIN) else 8),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", FILES)
def test_the_error_names_the_kind_of_file_and_what_reads_it(tmp_path: Path, kind: str, reader: str) -> None:
    path = tmp_path / kind
    path.write_bytes(FILES[kind])
    with pytest.raises(CorruptRecordError, match=f"this is an? {kind}.*: .*{CURES[kind]}"):
        list(READERS[reader](path))


def test_lines_of_bytes_may_be_those_of_records(tmp_path: Path) -> None:
    with asd.TFRecordWriter(tmp_path / "records") as writer:
        writer.write(b"a")
    lines: list[Any] = list(asd.Dataset.from_text(tmp_path / "records", encoding=None))
    assert b"\n".join(lines) == (tmp_path / "records").read_bytes().rstrip(b"\n")


@pytest.mark.parametrize("reader", ["from_tfrecord", "from_text"])
def test_a_compressed_archive_is_recognised_too(tmp_path: Path, reader: str) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar()))
    with pytest.raises(CorruptRecordError, match="this is a tar archive: use from_webdataset"):
        list(READERS[reader](tmp_path / "a.tar.gz"))


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_dialect_of_tar_is_recognised(kind: int) -> None:
    found = kind_of(tar(kind)[:START_NBYTES])
    assert found is not None
    assert found.name == "a tar archive"


def test_a_compressed_file_of_fixed_length_records_says_which_compression_to_pass(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(3000))
    (tmp_path / "x.gz").write_bytes(packed)
    with pytest.raises(CorruptRecordError, match=r"starts like gzip.*pass compression='gzip'"):
        list(asd.Dataset.from_fixed_length(tmp_path / "x.gz", len(packed) - 1))


def test_a_file_that_is_compressed_twice_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(gzip.compress(bytes(3000))))
    for compression in ("auto", "gzip"):
        with pytest.raises(CorruptRecordError, match=r"this is a gzip stream: .* compressed twice, so decompress it"):
            list(asd.Dataset.from_text(tmp_path / "x.gz", compression=compression))
    with pytest.raises(asd.PlanError, match=r"is a gzip stream: .* compressed twice, so decompress it once"):
        asd.Dataset.open_any(tmp_path / "x.gz")


TABLES: dict[str, Callable[[Path], asd.Dataset[Any]]] = {
    "arrow": lambda path: asd.Dataset.from_arrow(path),
    "npy": lambda path: asd.Dataset.from_npy(path),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", ["tar archive", "Parquet file", "HDF5 file", "PNG image", "Git LFS pointer"])
def test_readers_of_tables_name_the_kind_of_file_as_well(tmp_path: Path, kind: str, table: str) -> None:
    (tmp_path / "x").write_bytes(FILES[kind])
    with pytest.raises(CorruptRecordError, match=f"neither .*This is an? {kind}.*: .*{CURES[kind]}"):
        list(TABLES[table](tmp_path / "x"))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("content", "cure"), [(b"", "file is empty"), (b"a,b\n" * 99, r"let open_any\(\) find it")])
def test_readers_of_tables_say_what_to_do_about_other_files(
    tmp_path: Path, content: bytes, cure: str, table: str
) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(CorruptRecordError, match=f"neither .*{cure}"):
        list(TABLES[table](tmp_path / "x"))


def test_records_and_lines_are_told_from_each_other(tmp_path: Path) -> None:
    (tmp_path / "records").write_bytes(frame(b"a" * 80))
    (tmp_path / "lines").write_bytes(b"a,b,c\n1,2,3\n" * 9)
    with pytest.raises(CorruptRecordError, match=r"this is a TFRecord file: use from_tfrecord\(\)"):
        list(asd.Dataset.from_text(tmp_path / "records"))
    with pytest.raises(CorruptRecordError, match=r"this starts like text, 'a,b,c': use from_text\(\)"):
        list(asd.Dataset.from_tfrecord(tmp_path / "lines"))


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"<html><body>404 not found</body></html>", ", '<html><body>404 not found</body></html>'"),
        (b"\xef\xbb\xbf\r\n \n<!DOCTYPE html>\r\n<html>\n", ", '<!DOCTYPE html>'"),
        (b'{"error": "' + b"x" * 600 + b'"}', """, '{"error": "xxxxxxxxxxxxxxxxxxxxxxxxxx...'"""),
        ("ü".encode() * 400, ", '" + "ü" * 37 + "...'"),
        (b"get https://user:hunter2@host/x?sig=hunter2\n", ", 'get https://***@host/x?sig=***'"),
        (b"token=hunter2 and more", ", 'token=*** and more'"),
        (b"\n \n", ""),
    ],
)
def test_the_error_shows_the_first_line_of_text_without_secrets(tmp_path: Path, content: bytes, shown: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(CorruptRecordError) as caught:
        list(asd.Dataset.from_tfrecord(tmp_path / "x"))
    assert caught.value.reason.endswith(f"; this starts like text{shown}: use from_text()")
    assert SECRET not in str(caught.value)


MARKED = {
    f"{name}{order}{'' if lines.isascii() else ' without ASCII'}": (name, mark + lines.encode(f"{name}{order}"))
    for lines in ("id,name\r\n1,x\r\n" * 9, "\u65e5\u672c\u8a9e" * 40)
    for name, order, mark in (
        ("utf-16", "-le", b"\xff\xfe"),
        ("utf-16", "-be", b"\xfe\xff"),
        ("utf-32", "-le", b"\xff\xfe\0\0"),
        ("utf-32", "-be", b"\0\0\xfe\xff"),
    )
}


@pytest.mark.parametrize("reader", ["from_text", "from_tfrecord"])
@pytest.mark.parametrize("name", MARKED)
def test_text_with_the_byte_order_mark_of_another_encoding_says_how_to_convert_it(
    tmp_path: Path, name: str, reader: str
) -> None:
    encoding, content = MARKED[name]
    (tmp_path / "x").write_bytes(content)
    said = rf"this is {encoding.upper()} text: convert it to UTF-8, as with iconv -f {encoding.upper()} -t UTF-8(\n|$)"
    with pytest.raises(CorruptRecordError, match=said):
        list(READERS[reader](tmp_path / "x"))


@pytest.mark.parametrize("content", [b"\xff\xfe", "\ufeffhello\nworld\n".encode("utf-16-le")], ids=["empty", "short"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_no_line_of_text_in_utf_16_is_delivered(tmp_path: Path, encoding: str, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    dataset = asd.Dataset.from_text([tmp_path / "x", tmp_path / "none"], encoding=encoding, on_error="skip")
    with dataset.open(dead_letters=tmp_path / "log") as loader:
        assert list(loader) == []
    assert "this is UTF-16 text" in (tmp_path / "log").read_text()


def test_text_in_utf_16_is_read_as_bytes(tmp_path: Path) -> None:
    content = "a\nb".encode("utf-16")
    (tmp_path / "x").write_bytes(content)
    lines: list[Any] = list(asd.Dataset.from_text(tmp_path / "x", encoding=None))
    assert b"\n".join(lines) == content


def test_lines_behind_two_damaged_bytes_are_no_utf_16(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfecond line\n" + "third l\u00efne\n".encode() * 9)
    assert len(list(asd.Dataset.from_text(tmp_path / "x", on_error="skip"))) == 9


def test_records_of_a_fixed_length_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    for _, content in MARKED.values():
        (tmp_path / "x").write_bytes(content)
        assert list(asd.Dataset.from_fixed_length(tmp_path / "x", len(content))) == [content]


def test_a_byte_order_mark_alone_makes_no_text() -> None:
    draw = random.Random(0)
    found = [kind_of(mark + draw.randbytes(500)) for mark in (b"\xff\xfe", b"\xfe\xff") for _ in range(500)]
    assert sum(kind is not None for kind in found) < 20


def test_whole_files_and_fixed_length_records_behind_a_header_may_be_of_any_kind(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(tar())
    assert [one["data"] for one in asd.Dataset.from_files(tmp_path / "x")] == [tar()]
    rest = len(tar()) - 512
    assert list(asd.Dataset.from_fixed_length(tmp_path / "x", rest, header_nbytes=512)) == [tar()[512:]]


def test_damage_behind_good_records_is_not_taken_for_another_kind(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(frame(b"good" * 20) + frame(b"bad" * 20)[:-1])
    with pytest.raises(CorruptRecordError) as caught:
        list(asd.Dataset.from_tfrecord(tmp_path / "x"))
    assert "this " not in caught.value.reason


def test_text_that_begins_like_a_magic_number_is_text(tmp_path: Path) -> None:
    for line in ("PAR1 is the first word", "PK and more", "ARROW1 again"):
        (tmp_path / "x").write_text(line)
        assert list(asd.Dataset.from_text(tmp_path / "x")) == [line]


def test_random_bytes_are_no_kind_of_file() -> None:
    draw = random.Random(0)
    assert not any(kind_of(draw.randbytes(START_NBYTES)) for _ in range(2000))
    assert all(kind_of(bytes([0]) * nbytes) is None for nbytes in (0, 1, 12, START_NBYTES))


@pytest.mark.parametrize("kind", FILES)
def test_an_index_that_is_a_file_of_data_is_called_what_it_is(tmp_path: Path, kind: str) -> None:
    (tmp_path / "index").write_bytes(FILES[kind])
    with pytest.raises(IndexFileError, match=f"this is an? {kind}"):
        list(asd.Dataset.from_tfrecord(index=tmp_path / "index"))


def test_no_index_is_written_over_a_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(frame(b"a"))
    with pytest.raises(asd.PlanError, match=r"is one of the listed files.*overwritten. Give the index a name"):
        asd.write_index(tmp_path / "*", tmp_path / "a.tfrecord")
    assert (tmp_path / "a.tfrecord").read_bytes() == frame(b"a")
    with pytest.raises(asd.PlanError, match=r"is a pattern.*argument order"):
        asd.write_index("index", str(tmp_path / "*"))
