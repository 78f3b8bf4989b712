"""From an object's bytes to its records: which compression, how many columns, what the errors say."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest

from aiostream_data.codecs.compression import COMPRESSIONS
from aiostream_data.errors import PlanError
from aiostream_data.formats.base import Format
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.stream import BLOCK_NBYTES, PROBE_NBYTES, RecordStream, resolve
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.testing.formats import compressed, read_blocks

TFRECORD = TFRecordFormat()
# Its length field begins with gzip's magic number: 1f 8b 08.
GZIP_LOOKALIKE = bytes(0x088B1F)


def test_tfrecord_whose_length_looks_like_gzip_is_plain() -> None:
    stream = frame(GZIP_LOOKALIKE)
    assert stream.startswith(b"\x1f\x8b\x08")
    assert read_blocks(TFRECORD, stream, [1] * 70 + [1000], 0, "auto") == ([GZIP_LOOKALIKE], None)


def test_text_that_looks_like_zlib_is_plain() -> None:
    for text in ("x^2", "x^", "x^2 + y^2 = z^2\n" * 10):
        assert "".join(read_blocks(TextFormat(), text.encode(), [], 0, "auto").records) == text.replace("\n", "")


@pytest.mark.parametrize("format", [TFRECORD, TextFormat(), WholeFileFormat(), FixedLengthFormat(record_nbytes=1)])
def test_auto_finds_every_compression_in_every_format(format: Format) -> None:
    plain = frame(b"record")
    assert resolve("auto", format, plain[:PROBE_NBYTES]) == ""
    for name in COMPRESSIONS[1:]:
        assert resolve("auto", format, compressed(plain, resolve(name, format, b""))[:PROBE_NBYTES]) == name


def test_unknown_compression_is_refused_when_built() -> None:
    with pytest.raises(PlanError, match="got 'brotli'"):
        RecordStream(TFRECORD, "memory://x", "brotli")


@pytest.mark.parametrize("asked", COMPRESSIONS)
@pytest.mark.parametrize("actual", COMPRESSIONS)
def test_wrong_compression_is_an_error_that_says_what_the_bytes_look_like(asked: str, actual: str) -> None:
    stream = compressed(frame(b"record"), resolve(actual, TFRECORD, b""))
    records, error = read_blocks(TFRECORD, stream, [], 0, asked)
    if asked == actual:
        assert (records, error) == ([b"record"], None)
        return
    assert records == []
    assert error is not None
    assert error.offset == 0
    looks_like = actual or "a plain tfrecord"
    assert f"starts like {looks_like}, but compression={asked!r} was requested" in error.reason


def test_damage_inside_the_right_compression_gives_no_hint() -> None:
    _, error = read_blocks(TFRECORD, gzip.compress(frame(b"record")[:-1]), [], 0, "gzip")
    assert error is not None
    assert "asked for" not in error.reason


def test_plain_stream_gives_one_column_per_feed_that_shares_the_block() -> None:
    reader = RecordStream(TFRECORD, "memory://x", "")
    block = np.frombuffer(frame(b"a" * 100) * 3, np.uint8)
    (column,) = reader.feed(block, 0)
    assert len(column) == 3
    assert np.shares_memory(column.values, block)


def test_record_cut_by_a_block_is_joined_in_the_headroom_of_the_next() -> None:
    reader = RecordStream(TFRECORD, "memory://x", "")
    stream = np.frombuffer(frame(b"a" * 100) * 2, np.uint8)
    assert [len(column) for column in reader.feed(stream[:150], 0)] == [1]
    block = np.concatenate([np.zeros(64, np.uint8), stream[150:]])
    (column,) = reader.feed(block, 64)
    assert column.elements() == [b"a" * 100]
    assert np.shares_memory(column.values, block)


def test_compressed_stream_gives_many_bounded_columns_from_one_block() -> None:
    stream = np.frombuffer(gzip.compress(frame(bytes(1000)) * 10_000), np.uint8)
    columns = list(RecordStream(TFRECORD, "memory://x", "auto").feed(stream, 0))
    assert sum(len(column) for column in columns) == 10_000
    assert len(columns) >= 10_000 * len(frame(bytes(1000))) // BLOCK_NBYTES
    # A block, and in front of it the record that the block before it cut.
    assert max(len(column.values) for column in columns) <= BLOCK_NBYTES + (64 << 10)


def test_records_before_damage_in_the_compressed_stream_are_given() -> None:
    frames = frame(bytes(range(256))) * 100
    stream = zlib.compress(frames)
    records, error = read_blocks(TFRECORD, stream[:-1] + bytes([stream[-1] ^ 1]), [], 0, "zlib")
    assert records == [bytes(range(256))] * 100
    assert error is not None
    assert error.offset == len(frames)


def test_empty_object_holds_no_records_unless_it_should_be_compressed() -> None:
    assert read_blocks(TFRECORD, b"", [], 0, "auto") == ([], None)
    _, error = read_blocks(TFRECORD, b"", [], 0, "gzip")
    assert error is not None
    assert "cut short" in error.reason
