"""The JSON kernel against its twin, msgspec against the standard library, and whole files against ``json.loads``."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiostream_data import VarLen
from aiostream_data._native import json_rows_py as twin
from aiostream_data._native.csv_rows_py import KINDS
from aiostream_data.formats import json_values
from aiostream_data.formats.json_lines import JsonLinesFormat
from aiostream_data.formats.json_schema import checked_json_schema, nodes_of
from aiostream_data.rows.columns import VarColumn
from aiostream_data.testing.formats import read_blocks

KEYS = st.sampled_from(["a", "b", "é", 'q"\n', ""])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=4)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
TYPES: st.SearchStrategy[Any] = st.sampled_from([str, *KINDS])
SCHEMAS = st.recursive(
    st.dictionaries(KEYS, TYPES | TYPES.map(VarLen), min_size=1, max_size=3),
    lambda inner: st.dictionaries(KEYS, TYPES | inner, min_size=1, max_size=3),
    max_leaves=4,
)
FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *("{", "}", "[", "]", ",", ":", '"', " ", "\t", "\\", "null", "true", "false", "NaN", "1", "-1", "0"),
            *("1.5", "1e3", "-", '"a"', '"b":', '"a":1', '"é"', "\\ud800", "\\ude00", "\\n", "\x00"),
            *("[1,2]", "{}", "300", "1e400", '{"a":{"b":'),
        ]
    ),
    max_size=12,
).map("".join)


def spans_of(records: list[bytes]) -> tuple[Any, Any, Any]:
    lengths = np.array([len(record) for record in records], np.int64)
    return np.frombuffer(b"".join(records), np.uint8), np.cumsum(lengths) - lengths, lengths


def rows_of(parsed: twin.Parsed) -> list[Any]:
    """Return the values of the rows that have one."""
    values, starts, lengths, valid = parsed
    column: Any = values
    if isinstance(values, tuple):
        column = np.array(VarColumn(*values, "str").elements(), object)
    if starts is not None and lengths is not None:
        rows = [row.tolist() for row in VarColumn(column, starts, lengths, "array").elements()]
    else:
        rows = column.tolist()
    return [row if has else None for row, has in zip(rows, valid.tolist(), strict=True)]


def both(records: list[bytes], schema: dict[str, Any]) -> tuple[Any, Any]:
    native = pytest.importorskip("aiostream_data._native.json_rows")
    asked = (*spans_of(records), nodes_of(checked_json_schema(schema)))
    return native.parse_json(*asked), twin.parse_json(*asked)


def assert_same(found: Any, expected: Any) -> None:
    assert isinstance(found, twin.JsonFault) == isinstance(expected, twin.JsonFault), (found, expected)
    if isinstance(found, twin.JsonFault):
        assert found.row == expected.row
    else:
        assert repr([rows_of(one) for one in found]) == repr([rows_of(one) for one in expected])


@given(records=st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=4), schema=SCHEMAS, draw=st.data())
@settings(max_examples=25)
def test_the_kernel_returns_the_same_as_its_twin(records: list[Any], schema: dict[str, Any], draw: Any) -> None:
    options = draw.draw(st.fixed_dictionaries({"ensure_ascii": st.booleans(), "indent": st.sampled_from([None, 1])}))
    assert_same(*both([json.dumps(record, **options).encode() for record in records], schema))


@given(texts=st.lists(FRAGMENTS | FRAGMENTS.map(lambda text: "{" + text + "}"), max_size=3), schema=SCHEMAS)
@example(['{"a":1,"a":null}'], {"a": np.dtype(np.int64)})
@example(['{"a":"\\ud800\\ude00"}'], {"a": str})
@example(["{}", '{"é" :[1,2] }'], {"é": VarLen(np.int8)})
@settings(max_examples=100)
def test_the_kernel_and_its_twin_refuse_the_same_records(texts: list[str], schema: dict[str, Any]) -> None:
    assert_same(*both([text.encode() for text in texts], schema))


@given(
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("d", struct.pack("Q", bits))[0]),
    st.integers(0, 24),
    st.integers(-400, 400),
    st.integers(-(10**21), 10**21),
)
@example(5e-324, 24, 0, 2**64 - 1)
@example(2.2250738585072014e-308, 17, 0, 2**64)
@example(9007199254740993.0, 24, 0, -(2**63))
@settings(max_examples=150)
def test_numbers_are_the_nearest_of_the_written_ones(number: float, digits: int, power: int, integer: int) -> None:
    texts = [repr(number), f"{number:.{digits}e}", f"{number:.{digits}e}".split("e")[0] + f"e{power}", f"{integer}"]
    for text in texts if math.isfinite(number) else texts[-1:]:
        found, _ = both([b'{"a": %s}' % text.encode()], {"a": float})
        if math.isinf(float(text)):
            assert found.code == twin.OUT_OF_RANGE
        else:
            assert struct.pack("d", rows_of(found[0])[0]) == struct.pack("d", float(text)), text
    for dtype in (np.int64, np.uint64):
        found, _ = both([b'{"a": %d}' % integer], {"a": dtype})
        fits = np.iinfo(dtype).min <= integer <= np.iinfo(dtype).max
        assert rows_of(found[0]) == [integer] if fits else found.code == twin.OUT_OF_RANGE


@given(text=FRAGMENTS)
@settings(max_examples=100)
def test_msgspec_and_the_standard_library_give_the_same_values(text: str) -> None:
    msgspec = pytest.importorskip("msgspec")
    record = text.encode()
    problem = json_values.problem_of(record)
    if problem is None:
        assert repr(msgspec.json.decode(record)) == repr(json_values.load(record)) == repr(json.loads(text))
    else:
        assert 0 <= problem.place <= len(record)
        with pytest.raises((ValueError, RecursionError)):
            msgspec.json.decode(record)


@given(
    values=st.lists(VALUES, max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\n\n \t\n"]),
    sizes=st.lists(st.integers(0, 30), max_size=12),
)
@settings(max_examples=40)
def test_files_of_the_module_json_are_read_to_equal_values(values: list[Any], end: str, sizes: list[int]) -> None:
    stream = "".join(json.dumps(value, ensure_ascii=False) + end for value in values).encode()
    records, error = read_blocks(JsonLinesFormat(), stream, sizes, 3)
    assert error is None
    assert [json_values.loader()(record) for record in records] == values
