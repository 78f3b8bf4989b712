"""TFRecord: golden bytes, and no flipped bit or lost byte that yields a wrong record."""

from __future__ import annotations

import pytest

from aiostream_data._native import masked_crc32c
from aiostream_data.codecs.compression import COMPRESSIONS
from aiostream_data.errors import PlanError
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.testing.formats import blocks_of, compressed, read_blocks

RECORDS = [b"first", b"", b"third record"]
STREAM = b"".join(map(frame, RECORDS))


def test_frame_is_the_one_that_tensorflow_writes() -> None:
    assert frame(b"") == bytes.fromhex("0000000000000000 29039807 d8ea82a2")


def test_single_flipped_bit_never_yields_a_wrong_record() -> None:
    for bit in range(8 * len(STREAM)):
        damaged = bytearray(STREAM)
        damaged[bit // 8] ^= 1 << bit % 8
        for sizes in ([], [1] * len(STREAM)):
            records, error = read_blocks(TFRecordFormat(), bytes(damaged), sizes, 16, "auto")
            assert error is not None, bit
            assert records == RECORDS[: len(records)], bit
            assert error.offset == sum(len(frame(record)) for record in records), bit


def test_single_flipped_bit_in_a_compressed_file_never_yields_a_wrong_record() -> None:
    for compression in COMPRESSIONS[1:]:
        stream = compressed(STREAM, compression)
        for bit in range(8 * len(stream)):
            damaged = bytearray(stream)
            damaged[bit // 8] ^= 1 << bit % 8
            records, error = read_blocks(TFRecordFormat(), bytes(damaged), [], 0, "auto")
            assert records == RECORDS[: len(records)], (compression, bit)
            assert error is not None or records == RECORDS, (compression, bit)


def test_every_truncation_but_those_between_records_is_an_error() -> None:
    ends = [0, len(frame(RECORDS[0])), len(frame(RECORDS[0]) + frame(RECORDS[1]))]
    for nbytes in range(len(STREAM)):
        records, error = read_blocks(TFRecordFormat(), STREAM[:nbytes], [], 0, "")
        assert records == RECORDS[: len(records)]
        assert (error is None) == (nbytes in ends), nbytes


def test_truncation_says_how_much_is_there() -> None:
    _, error = read_blocks(TFRecordFormat(), STREAM[:15])
    assert error is not None
    assert error.reason == "the stream ends 15 bytes into a record of 21 bytes"
    _, error = read_blocks(TFRecordFormat(), STREAM[:5])
    assert error is not None
    assert error.reason == "the stream ends 5 bytes into a header"


def test_limit_on_records_is_exact() -> None:
    description = TFRecordFormat(max_record_nbytes=5)
    assert read_blocks(description, frame(b"12345")) == ([b"12345"], None)
    _, error = read_blocks(description, frame(b"123456"))
    assert error is not None
    assert error.reason == "record of 6 bytes is longer than the limit of 5"


def test_huge_claim_allocates_nothing() -> None:
    length = (1 << 29).to_bytes(8, "little")
    claim = length + masked_crc32c(length).to_bytes(4, "little")
    framer = TFRecordFormat().framer("memory://x")
    for block in blocks_of(claim + b"some bytes", [1] * 30):
        assert not list(framer.feed(block, 0))
    assert framer._tail.held_nbytes < 100


def test_limit_out_of_range_is_refused_when_built() -> None:
    with pytest.raises(PlanError, match="max_record_nbytes must be from 0 to 2\\*\\*62, got -1"):
        TFRecordFormat(max_record_nbytes=-1)
