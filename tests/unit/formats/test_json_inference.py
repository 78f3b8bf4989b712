"""Inferring the schema of JSON records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aiostream_data import JsonParseError, VarLen
from aiostream_data.formats.json_inference import INFERRED_RECORDS, JsonInference
from aiostream_data.formats.json_schema import checked_json_schema


def inferred(*records: bytes) -> Any:
    return JsonInference("x.jsonl", records).fields()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((b"1", b"-2", b"null"), np.int64),
        ((b"1", b"2.5"), np.float64),
        ((b"9223372036854775808", b"1"), np.uint64),
        ((b"18446744073709551616", b"2.5"), np.float64),
        ((b"[1]", b"[9223372036854775808]"), VarLen(np.uint64)),
        ((b"true", b"false"), np.bool_),
        ((b'"a"', b"null"), str),
        ((b"null",), str),
        ((b"[1, 2]", b"[]"), VarLen(np.int64)),
        ((b"[1]", b"[2.5]", b"null"), VarLen(np.float64)),
        ((b'["a"]',), VarLen(str)),
        ((b"[]",), VarLen(np.float64)),
        ((b'{"a": 1}', b'{"b": "x"}', b"null"), {"a": np.int64, "b": str}),
        ((*[b"1"] * INFERRED_RECORDS, b'"a"'), np.int64),
    ],
)
def test_the_first_type_that_all_values_have_is_inferred(values: tuple[bytes, ...], expected: Any) -> None:
    found = inferred(*(b'{"x": ' + value + b"}" for value in values))
    assert found == checked_json_schema({"x": expected})


def test_keys_are_those_of_all_records_in_order() -> None:
    found = inferred(b'{"b": 1, "a": {}}', b"[1]", b'{"c": 2, "b": 3', b'{"d": {"x": {"y": 1}, "z": {}}, "b": 2}')
    assert found == checked_json_schema({"b": np.int64, "d": {"x": {"y": np.int64}}})


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ((), r"x\.jsonl record 0: the start of the file contains no JSON object.*check the format"),
        ((b"{",), "no JSON object.*check the format"),
        ((b"[1]",), "no JSON object.*pass schema=None"),
        ((b"{}",), "all objects are empty"),
        ((b'{"x": 1}', b'{"x": "a"}'), "field 'x': the values 1 and 'a' have no type"),
        ((b'{"x": 9223372036854775808}', b'{"x": -1}'), "integers from -1 to 9223372036854775808 fit neither"),
        ((b'{"x": 18446744073709551616}',), "fit neither int64 nor uint64; declare the key as np.float64"),
        ((b'{"x": true}', b'{"x": 0}'), "the values True and 0 have no type"),
        ((b'{"x": {"y": [1, null]}}',), r"field 'x\.y': the values 1 and None have no type"),
        ((b'{"x": [[1]]}',), "have no type that a schema can contain; declare the keys"),
        ((b'{"a":' * 40 + b"1" + b"}" * 40,), "the objects have more than 32 levels"),
    ],
)
def test_values_without_a_type_are_refused_with_their_key(records: tuple[bytes, ...], message: str) -> None:
    with pytest.raises(JsonParseError, match=message):
        inferred(*records)
