from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import ExampleEncodeError
from aiostream_data.formats.example import parse_example
from aiostream_data.formats.example_writer import encode_example
from aiostream_data.formats.features import VarLen


def test_the_bytes_are_those_of_protobuf() -> None:
    assert encode_example({}) == b"\x0a\x00"
    assert encode_example({"a": 5}) == bytes.fromhex("0a0c 0a0a 0a0161 1205 1a03 0a01 05")
    assert encode_example({"a": "é"}) == bytes.fromhex("0a0d 0a0b 0a0161 1206 0a04 0a02 c3a9")
    assert encode_example({"a": 1.0}) == bytes.fromhex("0a0f 0a0d 0a0161 1208 1206 0a04 0000803f")
    assert encode_example({"a": -1})[-10:] == b"\xff" * 9 + b"\x01"


def test_equal_mappings_give_equal_bytes_in_any_order() -> None:
    assert encode_example({"b": 1, "a": 2.0}) == encode_example({"a": 2.0, "b": 1})


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (True, np.int64, [1]),
        (np.uint8(7), np.int64, [7]),
        (np.float64(0.5), np.float32, [0.5]),
        ([1, 2.5], np.float32, [1.0, 2.5]),
        ([[1, 2], [3, 4]], np.int64, [1, 2, 3, 4]),
        (np.arange(6).reshape(2, 3).T, np.int64, [0, 3, 1, 4, 2, 5]),
        ([b"a\x00", "é"], bytes, [b"a\x00", "é".encode()]),
        (np.array(["x", "yz"]), str, ["x", "yz"]),
        (bytearray(b"abc"), bytes, [b"abc"]),
        ([-(2**63), 2**63 - 1] * 10, np.int64, [-(2**63), 2**63 - 1] * 10),
        ([float("inf"), -0.0], np.float32, [float("inf"), 0.0]),
        (np.array([], np.float32), np.float32, []),
        (np.array([], object), bytes, []),
        ([], np.int64, []),
    ],
)
def test_a_value_goes_into_the_list_of_its_kind(value: Any, dtype: Any, expected: list[Any]) -> None:
    assert parse_example(encode_example({"x": value}), {"x": VarLen(dtype)})["x"].tolist() == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "cannot encode a value of type NoneType"),
        ({"a": 1}, "cannot encode a value of type dict"),
        ([1, b"a"], "a list of bytes and int"),
        ([None], "a list of NoneType"),
        (2**63, "does not fit into int64"),
        ([2**63], "does not fit into int64"),
        (np.array([2**63], np.uint64), "does not fit into int64"),
        (1e300, "too large"),
        (np.array([1e300]), "does not fit into float32"),
        (np.array([1j]), "complex128"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_a_value_without_a_place_is_refused_by_name(value: Any, reason: str) -> None:
    with pytest.raises(ExampleEncodeError) as caught:
        encode_example({"x": value})
    assert caught.value.feature == "x"
    assert reason in str(caught.value)
