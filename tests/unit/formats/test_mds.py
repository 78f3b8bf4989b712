"""MDS shards are split into samples however they arrive, and hostile ones are refused."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from mds_files import COLUMNS, described, encoded, index, shard

from aiostream_data import DecodeError, MdsError, PlanError
from aiostream_data.formats.mds import MdsFormat
from aiostream_data.formats.mds_columns import MdsColumn, decode_array, decode_raw_image
from aiostream_data.formats.mds_index import columns_of, parse_mds_index
from aiostream_data.formats.stream import RecordStream
from aiostream_data.testing.cut_streams import URL
from aiostream_data.testing.formats import Damage, FramingSuite, read_blocks

FORMAT = MdsFormat(columns=tuple(MdsColumn(name, kind) for name, kind in COLUMNS.items()), max_sample_nbytes=1000)
SAMPLES = [encoded(b"", 1, ""), encoded(b"abc", -2, "naïve"), encoded(bytes(20), 3, "x" * 5)]
STREAM = shard(SAMPLES)
START = len(STREAM) - sum(map(len, SAMPLES))
TABLE = 4 + 4 * 4


def changed(at: int, number: int) -> bytes:
    return STREAM[:at] + struct.pack("<I", number) + STREAM[at + 4 :]


DAMAGED = (
    Damage(STREAM[:-1], SAMPLES[:2], len(STREAM) - len(SAMPLES[2])),
    Damage(STREAM[: START + 3], [], START),
    Damage(STREAM[: TABLE + 5], [], 0),
    Damage(STREAM[:2], [], 0),
    Damage(b"", [], 0),
    Damage(STREAM + b"behind", SAMPLES, len(STREAM)),
    Damage(changed(0, 0xFFFFFFFF), [], 0),
    Damage(changed(4, START - 2), [], 0),  # cuts the header
    Damage(changed(4, TABLE), [], 0),
    Damage(changed(4, 0xFFFFFFFF), [], 0),
    Damage(changed(8, START - 1), [], 0),  # decreases
    Damage(changed(8, START + len(SAMPLES[0]) + 1), [], START),  # not the size of the sample
    Damage(changed(16, 0xFFFFFFF0), [], 0),  # above max_sample_nbytes
    Damage(changed(16, len(STREAM) + 9), SAMPLES[:2], len(STREAM) - len(SAMPLES[2])),  # beyond the end
    Damage(changed(START, 1), [], START),  # the size of a column
    Damage(changed(START + len(SAMPLES[0]), 0xFFFFFFFF), SAMPLES[:1], START + len(SAMPLES[0])),
    Damage(shard(SAMPLES, b"{}"), [], 0),
    Damage(shard(SAMPLES, b"no JSON"), [], 0),
    Damage(shard(SAMPLES, b"[" * 5000), [], 0),
    Damage(shard(SAMPLES, described({**COLUMNS, "more": "bytes"})), [], 0),
)


class TestMds(FramingSuite):
    description = FORMAT
    stream = STREAM
    records = SAMPLES
    damaged = tuple(DAMAGED[place] for place in (0, 14))


class TestFixedSizes(FramingSuite):
    description = MdsFormat(columns=(MdsColumn("a", "int32"), MdsColumn("b", "uint8")))
    stream = shard([b"abcde", b"12345"], described({"a": "int32", "b": "uint8"}))
    records = (b"abcde", b"12345")
    damaged = (Damage(stream[:-3], [b"abcde"], len(stream) - 5),)


class TestNoSamples(FramingSuite):
    description = FORMAT
    stream = shard([])
    records = ()


@pytest.mark.parametrize("listed", [0, 2, 4])
def test_a_shard_with_another_number_of_samples_than_its_index_lists_is_damaged_at_its_start(listed: int) -> None:
    description = MdsFormat(columns=FORMAT.columns, samples={URL: listed})
    for sizes in ([], [1] * len(STREAM), [30] * 20):
        records, error = read_blocks(description, STREAM, sizes)
        assert records == []
        assert error is not None
        assert error.offset == 0
        assert f"3 samples, but the index lists {listed}" in error.reason


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_reported_at_its_offset_behind_all_samples_before_it(damage: Damage) -> None:
    for sizes in ([], [1] * len(damage.stream), [30] * 20):
        records, error = read_blocks(FORMAT, damage.stream, sizes)
        assert records == damage.records
        assert error is not None
        assert error.offset == damage.offset


def test_a_shard_truncated_at_any_byte_is_refused() -> None:
    for stop in range(len(STREAM)):
        records, error = read_blocks(FORMAT, STREAM[:stop])
        assert error is not None
        assert records == SAMPLES[: len(records)]


def test_every_changed_byte_of_the_header_is_refused_or_harmless() -> None:
    for at in range(START + 8):
        for value in (0, 0x7F, 0xFF):
            records, error = read_blocks(FORMAT, STREAM[:at] + bytes([value]) + STREAM[at + 1 :])
            assert error is not None or records == SAMPLES


@pytest.mark.parametrize("first", range(4))
def test_a_stream_can_start_at_every_sample(first: int) -> None:
    offset = START + sum(map(len, SAMPLES[:first]))
    rest = np.frombuffer(STREAM[offset:], np.uint8)
    for cut in range(len(rest) + 1):
        stream = RecordStream(FORMAT, "memory://stream", "", offset)
        columns = [*stream.feed(rest[:cut].copy(), 0), *stream.feed(rest[cut:].copy(), 0), *stream.finish()]
        assert [record for column in columns for record in column.elements()] == SAMPLES[first:]


def test_samples_that_are_longer_than_a_block_are_collected_once() -> None:
    long = [encoded(bytes([row]) * 700_000, row, "x") for row in range(3)]
    stream = shard([*SAMPLES, *long])
    description = MdsFormat(columns=FORMAT.columns)
    for size in (100_000, 300_001):
        assert read_blocks(description, stream, [size] * (len(stream) // size)).records == [*SAMPLES, *long]
    at = len(stream) - len(long[2])
    damaged = stream[:at] + struct.pack("<I", 5) + stream[at + 4 :]
    records, error = read_blocks(description, damaged, [100_000] * 21)
    assert len(records) == 5
    assert error is not None
    assert error.offset == at


def test_many_samples_form_several_columns() -> None:
    stream = shard([encoded(b"", row, "") for row in range(50_000)])
    framer = MdsFormat(columns=FORMAT.columns).framer("memory://stream")
    counts = [len(column) for column in framer.feed(np.frombuffer(stream, np.uint8), 0, 20_000)]
    assert counts == [20_000, 20_000, 10_000]


def test_a_header_of_many_offsets_can_arrive_in_small_blocks() -> None:
    samples = [encoded(b"", row, "") for row in range(150_000)]
    stream = shard(samples)
    assert read_blocks(MdsFormat(columns=FORMAT.columns), stream, [90_000] * 100).records == samples


def parsed(changes: dict[str, Any], number: int = 0) -> Any:
    content = index({"a.mds": b"", "b.mds": b"1"})
    content["shards"][number] |= changes
    return parse_mds_index("s3://bucket/train/index.json", json.dumps(content).encode())


def test_an_index_lists_shards_with_their_sizes_below_its_folder() -> None:
    found = parsed({"raw_data": {"basename": "part/a.mds", "bytes": 7}})
    assert [(shard.url, shard.nbytes) for shard in found.shards] == [
        ("s3://bucket/train/part/a.mds", 7),
        ("s3://bucket/train/b.mds", 1),
    ]
    assert found.columns == FORMAT.columns


def test_a_compressed_shard_is_named_with_its_compression() -> None:
    content = index({"a.mds": b"abc"}, compression="zstd:3", zip_data={"basename": "a.mds.zstd", "bytes": 2})
    found = parse_mds_index("https://host/d/index.json?x=1", json.dumps(content).encode())
    assert (found.compression, found.shards[0].url) == ("zstd", "https://host/d/a.mds.zstd")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "xsv"}, "shard 1 of the index must have the format 'mds'"),
        ({"version": 3}, "version 2"),
        ({"column_names": ["data"]}, "invalid list of columns"),
        ({"column_sizes": [None, 4, None]}, "invalid list of columns"),
        ({"column_names": ["data", "n", "other"]}, "but shard 0 has data: bytes, n: int, text: str"),
        ({"compression": "zstd", "zip_data": {"basename": "x", "bytes": 1}}, "has the compression 'zstd', but shard 0"),
        ({"compression": "br", "zip_data": {"basename": "x", "bytes": 1}}, "Supported are gz and zstd"),
        ({"samples": -1}, "has an invalid number of samples, -1"),
        ({"samples": "3"}, "has an invalid number of samples, '3'"),
        ({"raw_data": None}, "lacks the name or the size"),
        ({"raw_data": {"basename": "a", "bytes": -1}}, "lacks the name or the size"),
        ({"raw_data": {"basename": "a", "bytes": 1 << 80}}, "lacks the name or the size"),
        *(
            ({"raw_data": {"basename": name, "bytes": 1}}, "outside of the folder")
            for name in ("../a", "/a", "", "a//b", "~/a", "s3://x/a", "a\n", "c:a", "a/../../b", "..\\a", "a?b")
        ),
    ],
)
def test_indices_that_lie_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MdsError, match=message) as raised:
        parsed(changes, 1)
    assert raised.value.record is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"shards": []}', b'{"shards": [1]}', b"[" * 9999, b"\xff"])
def test_other_files_are_no_index(content: bytes) -> None:
    with pytest.raises(MdsError, match="the index"):
        parse_mds_index("index.json", content)


def test_an_index_truncated_at_any_byte_is_refused() -> None:
    content = json.dumps(index({"a.mds": b"", "b.mds": b"1"})).encode()
    for stop in range(len(content)):
        with pytest.raises(MdsError):
            parse_mds_index("index.json", content[:stop])


@pytest.mark.parametrize(
    "encoding", ["pkl", "list[jpeg]", "ndarray:int8:", "ndarray:object", "ndarray:int8:1:2", "int128", ""]
)
def test_encodings_that_cannot_be_read_have_a_problem(encoding: str) -> None:
    assert MdsColumn("x", encoding).problem is not None
    assert columns_of({"column_names": ["x"], "column_encodings": [encoding], "column_sizes": [7]}) is not None


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\x07", b"\x21", b"\x21\x04", b"\x21\x04\x05", b"\x21\x04\x02" + bytes(7)),
        *(b"\x21\xff" + b"\xff" * 512, b"\x21\x0b" + b"\xff" * 16, b"\x21\x08\x00\xff" + bytes(1)),
    ],
)
def test_arrays_that_lie_about_their_shape_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_array(data, None, None)


@pytest.mark.parametrize("data", [b"", bytes(12), struct.pack("<3I", 1, 1, 1) + b"P1", b"\xff" * 40])
def test_raw_images_that_lie_about_their_size_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_raw_image(data)
    with pytest.raises(DecodeError, match="1 x 2 pixels"):
        decode_raw_image(struct.pack("<3I", 2, 1, 3) + b"RGB" + bytes(5))


def test_a_format_without_columns_refuses_to_list_shards() -> None:
    with pytest.raises(PlanError, match="opened by itself"):
        MdsFormat().indexed("index.json", b"")
