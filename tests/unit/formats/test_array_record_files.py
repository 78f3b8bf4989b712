"""ArrayRecord files: records of every compression, resuming, and damaged and hostile files."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_records as made
import numpy as np
import pytest
import zstandard
from array_records import array_record, chunk, in_groups, varint, with_header
from table_bytes import directory_of, rows_of

from aiostream_data import (
    CorruptRecordError,
    Dataset,
    MemoryBudgetError,
    MissingExtraError,
    PlanError,
)
from aiostream_data.formats.array_record import ArrayRecordFormat
from aiostream_data.rows.columns import SeparateBytes, column_elements
from aiostream_data.testing.resume import resumes_everywhere

FOLDER = Path(__file__).parents[2] / "data" / "array_record"
EXPECTED = [tuple(one) for one in json.loads((FOLDER / "expected.json").read_text())]
READABLE = ("default", "grouped", "plain", "plain_grouped", "brotli", "snappy", "padded")
RECORDS = [b"record %d" % n * (n % 4) for n in range(20)]


def stored(name: str) -> bytes:
    return gzip.decompress((FOLDER / f"{name}.array_record.gz").read_bytes())


def read(data: bytes, first: int = 0, limit: int = 1 << 28) -> list[bytes]:
    return list(rows_of(ArrayRecordFormat(), data, first, limit))


# -- sound files


@pytest.mark.parametrize("name", READABLE)
def test_records_are_those_that_the_library_wrote(name: str) -> None:
    data = stored(name)
    for first in range(0, len(EXPECTED) + 1, 3):
        found = [(len(record), hashlib.sha256(record).hexdigest()) for record in read(data, first)]
        assert found == EXPECTED[first:]


@pytest.mark.parametrize("compression", made.COMPRESSIONS)
@pytest.mark.parametrize("size", [1, 3, 20])
def test_records_are_equal_for_every_compression_and_size_of_chunks(compression: str, size: int) -> None:
    assert read(array_record(in_groups(RECORDS, size), compression)) == RECORDS


@pytest.mark.parametrize("compression", made.COMPRESSIONS)
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("records", [[b""], [b""] * 3, [b"x" * 2_000_000, *[b""] * 9], [b"", b"a", b""]], ids=len)
def test_records_without_bytes_are_read(records: list[bytes], size: int, compression: str) -> None:
    data = array_record(in_groups(records, size), compression)
    for first in range(len(records) + 1):
        assert read(data, first) == records[first:]


@pytest.mark.parametrize("compression", made.COMPRESSIONS)
def test_large_records_of_one_chunk_each_become_rows_without_a_copy(compression: str) -> None:
    records = [bytes([n]) * (40_000 + n) + bytes(range(256)) for n in range(20)]
    data = array_record(in_groups(records, 1), compression)
    directory = directory_of(ArrayRecordFormat(), data)
    columns = [
        leaf
        for group in directory.groups_from(0)
        for rows in directory.decode(group, [memoryview(data)[part.start : part.stop] for part in group.ranges])
        for leaf in rows.leaves
    ]
    assert [record for column in columns for record in column_elements(column)] == records
    assert all(isinstance(column, SeparateBytes) for column in columns) == bool(compression)
    assert read(data, 7) == records[7:]


@pytest.mark.parametrize("compression", [name for name in made.COMPRESSIONS if name])
def test_a_damaged_large_record_is_named(compression: str) -> None:
    records = [bytes(range(256)) * 200 for _ in range(5)]
    content = bytearray(chunk(records[:1], compression)[40:])
    content[-20:] = bytes(20)
    file = made.RiegeliFile()
    listed = [(file.add(chunk([record], compression)), len(record), 1) for record in records[:3]]
    listed.append((file.add(with_header(bytes(content), "r", 1, len(records[0]))), len(records[0]), 1))
    with pytest.raises(CorruptRecordError, match="a compressed part") as raised:
        read(file.ended(listed, compression))
    assert raised.value.offset == listed[3][0]


def test_a_file_without_records_has_no_rows() -> None:
    assert read(stored("empty")) == read(array_record([])) == []


def test_chunks_may_begin_and_end_anywhere_in_a_block() -> None:
    """Also where a chunk begins at the start of a block, or has its header on both sides of it."""
    for nbytes in [*range(65_300, 65_620), 200_000]:
        records = [np.arange(nbytes, dtype=np.uint8).tobytes(), b"next", b"x" * 70_000, b"last"]
        assert read(array_record(in_groups(records, 1), "")) == records, nbytes


def test_only_the_chunks_of_the_needed_records_are_read() -> None:
    records = [bytes([n]) * 100_000 for n in range(100)]
    data = array_record(in_groups(records, 5), "")
    groups = list(directory_of(ArrayRecordFormat(), data).groups_from(72))
    assert groups[0].first_row == 70
    assert sum(group.stored_nbytes for group in groups) < 31 * 100_500
    assert read(data, 72) == records[72:]


@pytest.mark.parametrize("chunks", [20, 3000])
def test_no_padding_is_read_to_find_the_chunks(chunks: int) -> None:
    records = [b"%d" % n for n in range(chunks)]
    data = array_record(in_groups(records, 1), "")
    assert len(data) > 2 * made.BLOCK - 1
    assert directory_of(ArrayRecordFormat(), data, limit=17_000 + 16 * chunks).rows == chunks
    assert read(data, chunks - 5) == records[-5:]


# -- files that are refused


def test_transposed_chunks_are_refused_with_the_option_of_the_writer() -> None:
    with pytest.raises(PlanError, match="transpose:false"):
        read(stored("transposed"))


@pytest.mark.parametrize("data", [b"", b"text\n" * 10, b"PK\x03\x04" + bytes(200_000), bytes(3 * made.BLOCK)])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="not an ArrayRecord file"):
        read(data)


def test_a_riegeli_file_without_a_footer_is_refused() -> None:
    file = made.RiegeliFile()
    file.add(chunk(RECORDS))
    file.pad()
    file.add(chunk(RECORDS))
    file.pad()
    with pytest.raises(CorruptRecordError, match="not that of an ArrayRecord file"):
        read(bytes(file.ended([], footer=64, magic=5)))
    with pytest.raises(CorruptRecordError, match="does not end with the footer"):
        read(array_record([])[:-1])


def test_a_file_cut_short_at_any_byte_is_an_error() -> None:
    data = array_record(in_groups(RECORDS, 3))
    view = memoryview(data)
    for stop in range(len(data)):
        with pytest.raises(CorruptRecordError):
            directory_of(ArrayRecordFormat(), view[:stop])  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", ["", "zstd"])
def test_a_damaged_byte_is_an_error_unless_it_is_padding(compression: str) -> None:
    data = array_record(in_groups(RECORDS, 7), compression)
    damaged = bytearray(data)
    errors = 0
    used = [place for place, byte in enumerate(data) if byte]
    for place in used:
        damaged[place] ^= 0x10
        try:
            assert read(bytes(damaged)) == RECORDS, place
        except (CorruptRecordError, PlanError):
            errors += 1
        damaged[place] = data[place]
    assert errors > len(used) * 2 // 3


def one_chunk(content: bytes, records: int = 2, nbytes: int = 5, listed: Any = None) -> bytes:
    """Return a file with one chunk that the footer describes with the same numbers."""
    file = made.RiegeliFile()
    offset = file.add(content)
    return file.ended([(offset, nbytes, records)] if listed is None else [listed])


def parts(sizes: bytes, values: bytes, kind: bytes = b"\0", records: int = 2, nbytes: int = 5, of: str = "r") -> bytes:
    return with_header(kind + varint(len(sizes)) + sizes + values, of, records, nbytes)


def packed(data: bytes, nbytes: int) -> bytes:
    return varint(nbytes) + zstandard.compress(data)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "more records than sizes": (lambda: one_chunk(parts(b"\5", b"12345")), "another number of records"),
    "fewer records than sizes": (lambda: one_chunk(parts(b"\2\2\1", b"12345")), "another number of records"),
    "a size that is cut short": (lambda: one_chunk(parts(b"\5\x80", b"12345")), "another number of records"),
    "a size beyond the chunk": (lambda: one_chunk(parts(b"\x7f\5", b"12345")), "longer than its chunk"),
    "a size of ten bytes": (lambda: one_chunk(parts(b"\xff" * 9 + b"\1\5", b"12345")), "longer than its chunk"),
    "sizes with another sum": (lambda: one_chunk(parts(b"\1\1", b"12345")), "another size than its header"),
    "fewer values": (lambda: one_chunk(parts(b"\2\3", b"1234")), "another size than its header"),
    "more values": (lambda: one_chunk(parts(b"\2\3", b"123456")), "another size than its header"),
    "sizes beyond the chunk": (lambda: one_chunk(with_header(b"\0\x7f\2\3", "r", 2, 5)), "cut short"),
    "no data": (lambda: one_chunk(with_header(b"", "r", 2, 5)), "no data"),
    "another kind": (lambda: one_chunk(parts(b"\2\3", b"12345", of="q")), "not a chunk of records"),
    "an unknown compression": (lambda: one_chunk(parts(b"\2\2\3", b"\x0512345", b"x")), "'x' is unknown"),
    "values that declare too much": (
        lambda: one_chunk(parts(packed(b"\2\3", 2), packed(b"12345", 1 << 40), b"z")),
        "does not fit its header",
    ),
    "sizes that declare too much": (
        lambda: one_chunk(parts(packed(b"\2\3", 1 << 30), packed(b"12345", 5), b"z")),
        "does not fit its header",
    ),
    "a frame of another size": (
        lambda: one_chunk(parts(packed(b"\2\3", 2), packed(b"1234", 5), b"z")),
        "declares 4 bytes",
    ),
    "no frame": (lambda: one_chunk(parts(packed(b"\2\3", 2), b"\x05abc", b"z")), "damaged"),
    "a frame that is cut short": (
        lambda: one_chunk(parts(packed(b"\2\3", 2), packed(b"12345", 5)[:-2], b"z")),
        "damaged",
    ),
    "brotli of another size": (
        lambda: one_chunk(
            parts(b"\2" + made.packed(b"\2\3", "brotli")[1:], b"\5" + made.packed(b"12", "brotli")[1:], b"b")
        ),
        "does not have the 5 bytes",
    ),
    "snappy of another size": (
        lambda: one_chunk(
            parts(b"\2" + made.packed(b"\2\3", "snappy")[1:], b"\5" + made.packed(b"12", "snappy")[1:], b"s")
        ),
        "does not have the 5 bytes",
    ),
    "damaged brotli": (
        lambda: one_chunk(parts(b"\2" + made.packed(b"\2\3", "brotli")[1:], b"\5\xff\xff", b"b")),
        "damaged",
    ),
    "damaged snappy": (
        lambda: one_chunk(parts(b"\2" + made.packed(b"\2\3", "snappy")[1:], b"\5\5\xff", b"s")),
        "damaged",
    ),
    "other numbers in the footer": (lambda: one_chunk(parts(b"\2\3", b"12345"), nbytes=6), "differs from the footer"),
    "a chunk beyond the footer": (lambda: one_chunk(chunk([b"a"]), listed=(1 << 62, 1, 1)), "cannot be true"),
    "a chunk before the first": (lambda: one_chunk(chunk([b"a"]), listed=(24, 1, 1)), "cannot be true"),
    "more records than bytes": (lambda: one_chunk(chunk([b"a"]), listed=(64, 1, 1 << 40)), "cannot be true"),
    "more bytes than a machine has": (lambda: one_chunk(chunk([b"a"]), listed=(64, 1 << 60, 1)), "cannot be true"),
    "another place of a chunk": (lambda: one_chunk(chunk([b"abc"]), listed=(65, 3, 1)), "does not match its hash"),
    "a chunk that is not described": (lambda: made.RiegeliFile().ended([], chunks=1), "lists 0 chunks, but declares 1"),
    "another number of records": (lambda: made.RiegeliFile().ended([], rows=1), "have 0 records"),
    "another version": (lambda: made.RiegeliFile().ended([], version=2), "of version 1"),
    "another magic number": (lambda: made.RiegeliFile().ended([], magic=1), "postscript"),
    "a footer beyond the file": (lambda: made.RiegeliFile().ended([], footer=1 << 50), "start of the footer"),
    "a footer inside of a header": (lambda: made.RiegeliFile().ended([], footer=made.BLOCK + 3), "start of the footer"),
    "a damaged description": (lambda: one_chunk(chunk([b"a"]), listed=(64, b"x", 1)), "damaged description"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_numbers_are_an_error(case: str) -> None:
    write, reason = HOSTILE[case]
    with pytest.raises(CorruptRecordError, match=reason):
        read(write())


def test_chunks_of_several_compressions_are_refused() -> None:
    file = made.RiegeliFile()
    listed = [(file.add(chunk([b"a"], compression)), 1, 1) for compression in ("", "zstd")]
    with pytest.raises(CorruptRecordError, match="another compression"):
        read(file.ended(listed))


def test_zstd_frames_without_their_size_are_read() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    sizes, values = (varint(len(part)) + compressor.compress(part) for part in (b"\2\3", b"12345"))
    assert read(one_chunk(parts(sizes, values, b"z"))) == [b"12", b"345"]


def test_chunks_that_decompress_to_more_than_the_limit_need_no_memory() -> None:
    nbytes = 1 << 36
    bomb = parts(packed(b"\2\3", 2), varint(nbytes) + b"\x28\xb5\x2f\xfd\xe0" + nbytes.to_bytes(8, "little"), b"z")
    with pytest.raises(MemoryBudgetError):
        read(one_chunk(bomb, nbytes=nbytes))


# -- through a Dataset


@pytest.fixture
def files(tmp_path: Path) -> str:
    for number, compression in enumerate(made.COMPRESSIONS):
        records = [b"%d:%d" % (number, row) for row in range(5 * number)]
        (tmp_path / f"{number}.array_record").write_bytes(array_record(in_groups(records, 4), compression))
    return str(tmp_path / "*.array_record")


def test_runs_resume_at_every_record(files: str) -> None:
    dataset = Dataset.from_array_record(files, cycle_length=2, block_length=2, shuffle_shards=True, seed=1)
    assert sorted(dataset) == sorted(b"%d:%d" % (number, row) for number in range(4) for row in range(5 * number))
    resumes_everywhere(dataset.shuffle(5, seed=1).batch(4))


def test_a_damaged_chunk_is_named_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "damaged.array_record"
    data = bytearray(array_record([[b"one"], [b"two"], [b"three"]], ""))
    data[data.index(b"three")] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match=r"damaged\.array_record.*do not match their hash") as caught:
        list(Dataset.from_array_record(str(path)))
    assert caught.value.offset == data.index(b"three"[1:]) - 1 - 3 - 40


def test_a_chunk_larger_than_the_memory_limit_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "large.array_record"
    path.write_bytes(array_record([[bytes(30_000_000)] * 4]))
    with pytest.raises(MemoryBudgetError, match=r"large\.array_record"):
        list(Dataset.from_array_record(str(path)).open(memory_limit="64MB"))


def test_any_format_is_recognized(files: str, tmp_path: Path) -> None:
    assert len(list(Dataset.open_any(files))) == 30
    (tmp_path / "unnamed").write_bytes(array_record([[b"a"]]))
    assert list(Dataset.open_any(tmp_path / "unnamed")) == [b"a"]


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("default", "zstandard", "zstd"), ("brotli", "pyarrow", "arrow")]
)
def test_a_missing_library_names_the_extra(name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"aiostream-data\[{extra}\]"):
        read(stored(name))
    assert len(read(stored("plain"))) == len(EXPECTED)
