"""Missing and damaged files: an error that says which object and where, and no wrong record before it."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.codecs.compression import COMPRESSIONS
from aiostream_data.errors import (
    CorruptRecordError,
    DataError,
    ExampleParseError,
    NoMatchError,
    ObjectNotFoundError,
    PlanError,
)
from aiostream_data.formats.tfrecord_writer import frame

RECORDS = [b"record %d " % number * 9 for number in range(50)]
CLEAN = b"".join(map(frame, RECORDS))


def opened(dataset: asd.Dataset[bytes]) -> None:
    dataset.open().close()


def read_until_error(dataset: asd.Dataset[bytes]) -> tuple[list[bytes], BaseException]:
    given: list[bytes] = []
    try:
        given.extend(dataset)
    except DataError as error:
        return given, error
    raise AssertionError("damage was not noticed")


def test_a_pattern_without_match_is_an_error_at_open_that_names_it(tmp_path: Path) -> None:
    pattern = str(tmp_path / "none-*.tfrecord")
    for dataset in (asd.Dataset.from_tfrecord(pattern), asd.Dataset.list_files(pattern)):
        with pytest.raises(NoMatchError, match=r"none-\*\.tfrecord"):
            opened(dataset)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        list(asd.Dataset.from_text(pattern))


def test_one_pattern_of_several_without_match_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(CLEAN)
    with pytest.raises(NoMatchError, match="other"):
        opened(asd.Dataset.from_tfrecord([str(tmp_path / "*.tfrecord"), str(tmp_path / "other-*")]))


def test_a_missing_file_is_an_error_at_open_that_names_it(tmp_path: Path) -> None:
    with pytest.raises((ObjectNotFoundError, NoMatchError), match=r"gone\.tfrecord"):
        opened(asd.Dataset.from_tfrecord(tmp_path / "gone.tfrecord"))


def test_a_missing_file_named_by_a_data_set_is_an_error_when_it_is_reached(tmp_path: Path) -> None:
    names = asd.Dataset.from_tensor_slices([str(tmp_path / "gone.tfrecord")])
    with pytest.raises(ObjectNotFoundError, match=r"gone\.tfrecord"):
        list(asd.Dataset.from_tfrecord(names))


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zlib.compress], ids=["plain", "gzip", "zlib"])
@pytest.mark.parametrize("cut", [1, 4, 8, 12, 13, 50, 500])
def test_r34_a_truncated_file_is_found_out(tmp_path: Path, cut: int, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "cut.tfrecord"
    path.write_bytes(compress(CLEAN)[:-cut])
    compression = {bytes: "", gzip.compress: "gzip", zlib.compress: "zlib"}[compress]
    given, error = read_until_error(asd.Dataset.from_tfrecord(path, compression=compression))
    assert isinstance(error, CorruptRecordError)
    assert "cut.tfrecord" in error.url
    assert given == RECORDS[: len(given)]


@pytest.mark.parametrize("number", [0, 1, 25, 49])
@pytest.mark.parametrize("place", [0, 5, 8, 11, 12, 20, -1])
def test_r34_a_flipped_bit_is_found_out_at_its_record(tmp_path: Path, number: int, place: int) -> None:
    start = sum(len(frame(record)) for record in RECORDS[:number])
    size = len(frame(RECORDS[number]))
    damaged = bytearray(CLEAN)
    damaged[start + place % size] ^= 0x10
    (tmp_path / "flip.tfrecord").write_bytes(damaged)
    given, error = read_until_error(asd.Dataset.from_tfrecord(tmp_path / "flip.tfrecord", compression=""))
    assert isinstance(error, CorruptRecordError)
    assert error.offset == start
    assert f"at byte {start}" in str(error)
    assert given == RECORDS[: len(given)]
    assert len(given) <= number


def test_r34_any_flipped_byte_of_a_gzip_file_is_found_out_or_changes_nothing(tmp_path: Path) -> None:
    packed = gzip.compress(CLEAN, mtime=0)
    picked = random.Random(0)
    for place in [*range(2, 4), *(picked.randrange(4, len(packed)) for _ in range(40))]:
        damaged = bytearray(packed)
        damaged[place] ^= 1 << picked.randrange(8)
        (tmp_path / "x.gz").write_bytes(damaged)
        given: list[bytes] = []
        try:
            given.extend(asd.Dataset.from_tfrecord(tmp_path / "x.gz", compression="gzip"))
        except CorruptRecordError:
            assert given == RECORDS[: len(given)]
        else:
            assert given == RECORDS  # a time stamp or a flag without effect


def test_r34_a_second_gzip_member_cut_short_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(CLEAN) + gzip.compress(CLEAN)[:-6])
    given, error = read_until_error(asd.Dataset.from_tfrecord(tmp_path / "x.gz"))
    assert isinstance(error, CorruptRecordError)
    assert given == [*RECORDS, *RECORDS][: len(given)]


@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
def test_the_wrong_compression_is_an_error_that_names_the_file(tmp_path: Path, compression: str) -> None:
    (tmp_path / "plain.tfrecord").write_bytes(CLEAN)
    given, error = read_until_error(asd.Dataset.from_tfrecord(tmp_path / "plain.tfrecord", compression=compression))
    assert given == []
    assert isinstance(error, CorruptRecordError)
    assert "plain.tfrecord" in str(error)


def test_a_compressed_file_read_as_plain_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(gzip.compress(CLEAN))
    given, error = read_until_error(asd.Dataset.from_tfrecord(tmp_path / "x.tfrecord", compression=""))
    assert (given, type(error)) == ([], CorruptRecordError)


def test_a_damaged_file_among_sound_ones_is_named(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(CLEAN[:-3] if name == "b" else CLEAN)
    for cycle in (1, 3):
        _, error = read_until_error(asd.Dataset.from_tfrecord(tmp_path / "*", cycle_length=cycle))
        assert isinstance(error, CorruptRecordError)
        assert error.url.endswith("/b")


def test_an_error_below_a_long_chain_is_the_same_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CLEAN[:-3])
    chain = asd.Dataset.from_tfrecord(tmp_path / "x").map(len).shuffle(9).batch(4).cache().repeat(2).prefetch(2)
    with pytest.raises(CorruptRecordError) as caught:
        list(chain)
    assert any(note.startswith("stage: read_tfrecord, written at ") for note in caught.value.__notes__)


def test_a_fixed_length_file_that_is_no_whole_number_of_records_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(11))
    with pytest.raises(CorruptRecordError, match="/f at byte"):
        list(asd.Dataset.from_fixed_length(tmp_path / "f", 4))


def test_text_that_is_not_in_its_encoding_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"good\nbad \xff\xfe\nmore\n")
    with pytest.raises(DataError, match=r"t\.txt"):
        list(asd.Dataset.from_text(tmp_path / "t.txt"))


EXAMPLES = [asd.encode_example({"label": number, "pair": [number, number]}) for number in range(10)]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("seventh", "feature", "expected", "found"),
    [
        ({"pair": [1, 2]}, "label", "int64", "no values"),
        ({"label": 1.5, "pair": [1, 2]}, "label", "int64", "float"),
        ({"label": b"x", "pair": [1, 2]}, "label", "int64", "bytes"),
        ({"label": 1, "pair": [1, 2, 3]}, "pair", "2", "3"),
        ({"label": 1, "pair": [1]}, "pair", "2", "1"),
    ],
    ids=["missing", "float", "bytes", "long", "short"],
)
def test_an_example_that_does_not_fit_names_record_feature_expected_and_found(
    tmp_path: Path, seventh: dict[str, object], feature: str, expected: str, found: str, fused: bool
) -> None:
    records = [*EXAMPLES[:7], asd.encode_example(seventh), *EXAMPLES[8:]]
    (tmp_path / "x.tfrecord").write_bytes(b"".join(map(frame, records)))
    source = asd.Dataset.from_tfrecord(tmp_path / "x.tfrecord")
    features: dict[str, asd.FixedLen] = {"label": asd.FixedLen((), np.int64), "pair": asd.FixedLen((2,), np.int64)}
    parsed = (source if fused else source.map(bytes)).parse_example(features)
    with pytest.raises(ExampleParseError, match=rf"x\.tfrecord record 7: feature '{feature}'") as caught:
        list(parsed)
    error = caught.value
    assert (error.record, error.feature) == (7, feature)
    assert expected in error.expected
    assert found in error.found


def test_records_that_are_no_examples_name_the_record(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(b"".join(map(frame, [EXAMPLES[0], b"\xff" * 9])))
    dataset = asd.Dataset.from_tfrecord(tmp_path / "x.tfrecord").parse_example({"label": asd.FixedLen((), np.int64)})
    with pytest.raises(ExampleParseError, match=r"x\.tfrecord record 1"):
        list(dataset)


@pytest.mark.parametrize("values", [[1, 2], ["a", "b"], [None, b"x"], [{"a": b""}]], ids=["int", "str", "none", "dict"])
def test_parse_example_of_what_is_not_bytes_says_so(values: list[object]) -> None:
    features = {"a": asd.FixedLen((), np.int64)}
    dataset = asd.Dataset.from_iterable(values).parse_example(features)  # type: ignore[misc]
    with pytest.raises(PlanError, match="serialized bytes, got") as caught:
        list(dataset)
    assert "record: from_iterable() record 0" in caught.value.__notes__
