from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import ExampleParseError
from aiostream_data.formats.example import ExampleParser, join_records, parse_example
from aiostream_data.formats.example_writer import encode_example
from aiostream_data.formats.features import Feature, FixedLen, FixedLenSequence, Ragged, VarLen
from aiostream_data.rows.columns import VarColumn


def of_x(feature: bytes) -> bytes:
    """Return an Example whose feature "x" has this serialized Feature (under 100 bytes)."""
    entry = b"\x0a\x01x\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    return b"\x0a" + bytes([len(features)]) + features


def values_of(feature: bytes, dtype: Any) -> list[Any]:
    found: list[Any] = parse_example(of_x(feature), {"x": VarLen(dtype)})["x"].tolist()
    return found


def test_each_feature_takes_the_shape_and_dtype_of_its_description() -> None:
    record = encode_example({"image": b"\x00jpeg", "label": 3, "box": [0.0, 1.0, 2.0, 3.0], "words": ["a", "b"]})
    parsed = parse_example(
        record,
        {
            "image": FixedLen((), bytes),
            "label": FixedLen((), np.int32),
            "box": FixedLen((2, 2), np.float64),
            "words": Ragged(str),
        },
    )
    assert parsed["image"] == b"\x00jpeg"
    assert parsed["label"] == np.int32(3)
    assert parsed["label"].dtype == np.int32
    assert parsed["box"].dtype == np.float64
    assert parsed["box"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert parsed["words"].tolist() == ["a", "b"]


def test_scalar_bytes_are_slices_of_the_buffer_that_was_read() -> None:
    chunk = join_records([encode_example({"x": b"one", "y": 1}), encode_example({"x": b"three", "y": 2})])
    parser = ExampleParser({"x": FixedLen((), bytes), "y": FixedLen((), np.int64)})
    x, y = parser.parse(chunk.with_lease("lease"), lambda row: ("", row)).leaves
    (records,) = chunk.leaves
    assert isinstance(x, VarColumn)
    assert isinstance(records, VarColumn)
    assert np.shares_memory(x.values, records.values)
    assert x.elements() == [b"one", b"three"]
    assert isinstance(y, np.ndarray)
    assert not np.shares_memory(y, records.values)


@pytest.mark.parametrize(("feature", "lease"), [(FixedLen((), bytes), "lease"), (FixedLen((1,), bytes), None)])
def test_the_lease_goes_on_only_with_leaves_that_share_the_buffer(feature: Feature, lease: object) -> None:
    chunk = join_records([encode_example({"x": b"one"})]).with_lease("lease")
    assert ExampleParser({"x": feature}).parse(chunk, lambda row: ("", row)).lease == lease


def test_ids_and_the_order_of_features_are_kept() -> None:
    chunk = join_records([encode_example({"b": i, "a": -i}) for i in range(5)]).slice(2, 5)
    parsed = ExampleParser({"b": FixedLen((), int), "a": FixedLen((), int)}).parse(chunk, lambda row: ("", row))
    assert parsed.ids.tolist() == [[0, 2], [0, 3], [0, 4]]
    assert parsed.elements() == [{"b": i, "a": -i} for i in (2, 3, 4)]
    assert list(parsed.element(0)) == ["b", "a"]


def test_missing_features_take_their_default() -> None:
    records = [encode_example({}), encode_example({"n": 1, "s": "là", "v": [b"x", b"y"]})]
    described: dict[str, Feature] = {
        "n": FixedLen((), np.uint8, 9),
        "s": FixedLen((), str, "être"),
        "v": FixedLen((2,), bytes, b"-"),
        "w": VarLen(np.float32),
        "q": FixedLenSequence((2,), np.int64, allow_missing=True),
    }
    first, second = parse_example(records, described)
    assert (first["n"], first["s"], first["v"].tolist()) == (9, "être", [b"-", b"-"])
    assert (second["n"], second["s"], second["v"].tolist()) == (1, "là", [b"x", b"y"])
    assert first["w"].shape == (0,)
    assert first["q"].shape == (0, 2)


def test_steps_of_a_shape_are_stacked() -> None:
    parsed = parse_example(encode_example({"path": range_list(6)}), {"path": FixedLenSequence((2,), np.int64)})
    assert parsed["path"].tolist() == [[0, 1], [2, 3], [4, 5]]


def range_list(stop: int) -> list[int]:
    return list(range(stop))


@pytest.mark.parametrize(
    ("value", "feature", "message"),
    [
        ({}, FixedLen((), int), "feature 'x': expected an int64 list of 1, found no values"),
        ({}, FixedLenSequence((), bytes), "expected a bytes list, found no values"),
        ({"x": [1, 2]}, FixedLen((), int), "expected an int64 list of 1, found 2 values"),
        ({"x": np.array([], np.int64)}, FixedLen((), int, 5), "expected an int64 list of 1, found 0 values"),
        ({"x": 1.0}, FixedLen((), int), "expected an int64 list of 1, found a float list"),
        ({"x": 1.0}, VarLen(bytes), "expected a bytes list, found a float list"),
        ({"x": [1, 300]}, VarLen(np.uint8), "expected a value that fits into uint8, found 300"),
        ({"x": -1}, FixedLen((), np.uint64), "expected a value that fits into uint64, found -1"),
        ({"x": 2}, FixedLen((), bool), "expected a value that fits into bool, found 2"),
        ({"x": 1e30}, FixedLen((), np.float16), "expected a value that fits into float16"),
        ({"x": b"ab\xff"}, FixedLen((), str), "expected UTF-8 text, found byte 0xff at 2"),
        ({"x": [1, 2, 3]}, FixedLenSequence((2,), int), "expected a multiple of 2 values, for steps of shape (2,)"),
    ],
)
def test_a_record_that_does_not_fit_is_named_with_what_was_expected_and_found(
    value: dict[str, Any], feature: Feature, message: str
) -> None:
    described: dict[str, Feature] = {"other": VarLen(int), "x": feature, "y": FixedLen((), np.uint8, 0)}
    worse_later: list[dict[str, Any]] = [{"x": []}, {"x": 1.0}, {"x": b"x"}, {"x": 2, "other": b"no number"}]
    chunk = join_records([encode_example(one) for one in (value, *worse_later)] + [b"damaged"])
    with pytest.raises(ExampleParseError) as caught:
        ExampleParser(described).parse(chunk, lambda row: ("s3://b/k", row + 100))
    assert message in str(caught.value)
    assert (caught.value.url, caught.value.record, caught.value.feature) == ("s3://b/k", 100, "x")


def test_the_first_record_that_does_not_fit_is_named_whatever_is_wrong_with_later_ones() -> None:
    described: dict[str, Feature] = {"a": FixedLen((), np.uint8), "b": FixedLen((), np.uint8)}
    rows = [{"a": 1, "b": 1}, {"a": 1, "b": 300}, {"a": 300, "b": 1}, {"a": 1}]
    with pytest.raises(ExampleParseError, match="record 1: feature 'b'"):
        parse_example([encode_example(row) for row in rows], described)


def test_damage_is_named_by_its_byte() -> None:
    with pytest.raises(
        ExampleParseError, match=r"record 1: expected a tf\.train\.Example, found damaged protobuf at byte \d+"
    ):
        parse_example([encode_example({"x": 1}), encode_example({"x": 1})[:-1]], {"x": FixedLen((), int)})


def test_packed_and_single_values_may_be_mixed_in_one_list() -> None:
    assert values_of(b"\x1a\x08\x0a\x02\x01\x02\x08\x03\x0a\x00", np.int64) == [1, 2, 3]
    one, two = b"\x00\x00\x80\x3f", b"\x00\x00\x00\x40"
    assert values_of(b"\x12\x0b\x0d" + one + b"\x0a\x04" + two, np.float32) == [1.0, 2.0]


def test_the_last_kind_wins_and_lists_of_one_kind_are_joined() -> None:
    assert values_of(b"\x1a\x02\x08\x01\x1a\x02\x08\x02", np.int64) == [1, 2]
    assert values_of(b"\x1a\x02\x08\x01\x12\x00\x1a\x02\x08\x02", np.int64) == [2]
    with pytest.raises(ExampleParseError, match="found a float list"):
        values_of(b"\x1a\x02\x08\x01\x12\x00", np.int64)


def test_the_last_entry_of_a_name_replaces_earlier_ones_even_of_another_kind() -> None:
    wrong, right, none = of_x(b"\x12\x00"), of_x(b"\x1a\x02\x08\x07"), of_x(b"")
    described: dict[str, Feature] = {"x": FixedLen((), int, 5)}
    assert parse_example(wrong + right, described)["x"] == 7
    assert parse_example(right + none, described)["x"] == 5


def test_unknown_fields_of_every_wire_type_are_passed_over() -> None:
    unknown = b"\x78\x05" + b"\x79" + bytes(8) + b"\x7a\x02hi" + b"\x7d" + bytes(4)
    values = b"\x1a" + bytes([len(unknown) + 2]) + unknown + b"\x08\x07"
    assert values_of(unknown + values + unknown, np.int64) == [7]


@pytest.mark.parametrize("tail", [b"\x7b", b"\x7c", b"\x7e", b"\x7f", b"\x00", b"\x07", b"\x7a\x05", b"\x79\x00"])
def test_groups_and_impossible_fields_are_damage(tail: bytes) -> None:
    with pytest.raises(ExampleParseError, match="damaged protobuf"):
        parse_example(of_x(b"") + tail, {"x": VarLen(int)})


def test_lists_that_tensorflow_would_cut_short_in_silence_are_damage() -> None:
    for feature, dtype in ((b"\x1a\x03\x0a\x7f\x01", np.int64), (b"\x12\x05\x0a\x03abc", np.float32)):
        with pytest.raises(ExampleParseError, match="damaged protobuf"):
            values_of(feature, dtype)


def test_records_too_short_for_what_they_must_hold_allocate_nothing() -> None:
    chunk = join_records([b""] * 100_000)
    parser = ExampleParser({"x": FixedLen((1 << 24,), np.int64)})
    with pytest.raises(ExampleParseError, match="record 0: feature 'x'"):
        parser.parse(chunk, lambda row: ("", row))


def test_a_parser_survives_pickling() -> None:
    parser = pickle.loads(pickle.dumps(ExampleParser({"x": FixedLen((2,), int, 0)})))
    assert parser.element_specs == (((2,), np.dtype(np.int64), False),)
    assert parser.parse(join_records([b""]), lambda row: ("", row)).element(0)["x"].tolist() == [0, 0]


def test_no_records_give_no_rows() -> None:
    assert parse_example([], {"x": FixedLen((), bytes), "y": VarLen(int), "z": FixedLen((2,), str)}) == []
