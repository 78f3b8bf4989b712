"""Parsing JSON records to typed columns, with the native parser and with its twin."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from aiostream_data import FixedLen, JsonParseError, PlanError, VarLen, _native
from aiostream_data._native import json_rows_py
from aiostream_data._native.json_rows_py import MOST_DEPTH
from aiostream_data.formats.json_columns import JsonParser
from aiostream_data.formats.json_lines import JsonRecords
from aiostream_data.formats.json_schema import checked_json_schema
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Columns, concat, gather, records_chunk
from aiostream_data.rows.row_ids import RowIds


@pytest.fixture(params=["native", "twin"], autouse=True)
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "twin":
        monkeypatch.setattr(_native, "parse_json", json_rows_py.parse_json)


def chunk_of(*records: bytes) -> Columns:
    lengths = np.array([len(record) + 1 for record in records], np.int64)
    values = np.frombuffer(b"".join(record + b"\n" for record in records), np.uint8)
    column = VarColumn(values, np.cumsum(lengths) - lengths, lengths - 1)
    return records_chunk(JsonRecords(column, 2, 100), RowIds.run(0, 0, len(records)))


def parser_of(schema: dict[str, Any]) -> JsonParser:
    return JsonParser(checked_json_schema(schema))


def parse(schema: dict[str, Any], *records: bytes) -> Columns:
    return parser_of(schema).parse(chunk_of(*records), lambda row: ("s3://bucket/x.jsonl?secret=1", 10 + row))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (np.int8, b"-128", np.int8(-128)),
        (np.uint8, b"255", np.uint8(255)),
        (np.int16, b"-7", np.int16(-7)),
        (np.uint32, b"4294967295", np.uint32(2**32 - 1)),
        (np.uint64, b"18446744073709551615", np.uint64(2**64 - 1)),
        (int, b"-9223372036854775808", -(2**63)),
        (int, b"-0", 0),
        (np.float32, b"0.1", np.float32(0.1)),
        (np.float32, b"16777217", np.float32(16777216)),
        (float, b"12345678901234567890123", 12345678901234567890123.0),
        (float, b"0.1234567890123456789012345", 0.1234567890123456789012345),
        (float, b"-1E+2", -100.0),
        (float, b"1e-400", 0.0),
        (float, b"5e-324", 5e-324),
        (bool, b"true", True),
        (bool, b"false", False),
        (str, b'""', ""),
        (str, b'" a\\u00e9\\"\\\\\\/\\b\\f\\n\\r\\t\\ud83d\\ude42\\u0000 \xc3\xa9"', ' aé"\\/\b\f\n\r\t\U0001f642\0 é'),
        ("int32", b"3", np.int32(3)),
        ("str", b'"x"', "x"),
    ],
)
def test_values_become_those_of_the_declared_type(kind: Any, text: bytes, value: Any) -> None:
    (element,) = parse({"x": kind}, b' { "y" : [{"a": "b"}] ,\t"x" :' + text + b" } ").elements()
    assert element == {"x": value}
    assert type(element["x"]) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (int, b"1.0", "expected int64 or null, found '1.0'; declare the type"),
        (int, b"1e3", "expected int64 or null, found '1e3'"),
        (int, b"true", "expected int64 or null, found 'true'"),
        (int, b'"1"', "expected int64 or null, found '\"1\"'"),
        (int, b"9223372036854775808", "out of range for int64, found '9223372036854775808'; declare a larger type"),
        (int, b"-9223372036854775809", "out of range for int64"),
        (int, b"1" + b"0" * 5000, "an integer has more than 4300 digits"),
        (np.uint8, b"-1", "out of range for uint8, found '-1'"),
        (np.int8, b"128", "out of range for int8"),
        (float, b"[1]", "expected float64 or null, found '\\[1\\]'"),
        (np.float32, b"1e39", "out of range for float32, found '1e39'"),
        (bool, b"1", "expected bool or null, found '1'"),
        (str, b"1", "expected str or null, found '1'"),
        (VarLen(int), b"1", "expected a list of int64 or null, found '1'"),
        (VarLen(int), b"[1, null]", "expected a list of int64 or null, found 'null'"),
        (VarLen(str), b'["a", 1]', "expected a list of str or null, found '1'"),
        (VarLen(np.int8), b"[1, 300]", "out of range for a list of int8"),
        ({"a": int}, b"[]", "expected an object or null, found '\\[\\]'"),
    ],
)
def test_values_of_another_type_are_refused_with_their_place(
    kind: Any, text: bytes, message: str, request: pytest.FixtureRequest
) -> None:
    if "twin" in request.node.name or not _native.HAVE_NATIVE:
        message = message.partition(", found")[0]  # the twin does not know the place
    record = b'{"x": ' + text + b"}"
    with pytest.raises(JsonParseError, match=message) as raised:
        parse({"y": str, "x": kind}, b'{"y": "a"}', b"{}", record)
    error = raised.value
    assert (error.record, error.line) == (12, 4)
    assert error.field in ("x", "")
    assert error.offset is not None
    assert error.offset >= 100 + len(b'{"y": "a"}\n{}\n')
    assert str(error).startswith("s3://bucket/x.jsonl")
    assert "secret=1" not in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b'{"x": NaN}', "NaN is not JSON; write null"),
        (b'{"x": Infinity}', "Infinity is not JSON"),
        (b'{"z": "NaN", "y": -Infinity}', "-Infinity is not JSON"),
        (b'{"x": 1', "the record ends too early"),
        (b'{"x": 1}}', "extra data at '}'"),
        (b'{"x": 01}', "expecting ',' delimiter"),
        (b'{"x": 1,}', "expecting property name|illegal trailing comma"),
        (b'{"x" 1}', "expecting ':' delimiter"),
        (b"{x: 1}", "expecting property name"),
        (b"{'x': 1}", "expecting property name"),
        (b'{"y": "\x01"}', "invalid control character"),
        (b'{"y": "a\x00b"}', "invalid control character"),
        (b'{"x": 1}\x00', "extra data"),
        (b'{"y": "\\x"}', "invalid \\\\escape"),
        (b'{"y": "\\u12"}', "invalid \\\\uXXXX escape"),
        (b'{"y": "\\ud800"}', "half of a surrogate pair at '\\\\\\\\ud800\"}'"),
        (b'{"y": "\\udc00\\ud800"}', "half of a surrogate pair"),
        (b'{"\\ud800x": 1}', "half of a surrogate pair"),
        (b"[1]", "expected an object with the keys of schema=, found '\\[1\\]'"),
        (b"null", "expected an object with the keys of schema=, found 'null'"),
        (b'{"y": ' + b"[" * 100_000, f"nests more than {MOST_DEPTH}"),
        (b'{"y": ' + b'{"a": ' * 100_000, f"nests more than {MOST_DEPTH}"),
    ],
)
def test_other_records_are_not_json(record: bytes, message: str) -> None:
    with pytest.raises(JsonParseError, match=message) as raised:
        parse({"x": int}, b"{}", record)
    assert raised.value.record == 11
    assert raised.value.field == ""


def test_the_deepest_record_is_read_and_a_deeper_one_is_not() -> None:
    deep = b'{"y": ' + b"[" * (MOST_DEPTH - 1) + b"]" * (MOST_DEPTH - 1) + b"}"
    assert parse({"x": int}, deep).elements() == [{"x": None}]
    with pytest.raises(JsonParseError, match="nests more than"):
        parse({"x": int}, deep.replace(b"[]", b"[{}]"))


def test_numbers_of_other_keys_may_be_larger_than_any_type() -> None:
    assert parse({"x": int}, b'{"y": 1e999, "z": 1%s}' % (b"0" * 30)).elements() == [{"x": None}]


def test_missing_keys_and_null_are_none_and_other_keys_are_ignored() -> None:
    schema = {"i": int, "s": str, "v": VarLen(np.float32), "o": {"a": int, "p": {"b": bool}}}
    chunk = parse(
        schema,
        b'{"v": [1, 2.5], "i": 1, "s": "a", "o": {"p": {"b": true}, "a": 2}, "more": {"i": 9}}',
        b'{"i": null, "o": {"p": null}}',
        b'{"o": null, "s": null, "v": null}',
        b'{"v": [ ], "o": {}}',
    )
    elements = chunk.elements()
    assert elements[0].pop("v").tolist() == [1.0, 2.5]
    assert elements[3].pop("v").tolist() == []
    nothing = {"a": None, "p": {"b": None}}
    assert elements == [
        {"i": 1, "s": "a", "o": {"a": 2, "p": {"b": True}}},
        {"i": None, "s": None, "v": None, "o": nothing},
        {"i": None, "s": None, "v": None, "o": nothing},
        {"i": None, "s": None, "o": nothing},
    ]
    assert list(elements[1]) == list(schema)


def test_the_last_of_equal_keys_counts_and_all_must_be_of_the_type() -> None:
    schema = {"x": int, "s": str, "o": {"a": int, "b": int}, "v": VarLen(int)}
    (element,) = parse(
        schema,
        b'{"x": 1, "o": {"a": 1, "b": 1}, "v": [1, 2], "x": 2, "\\u006f": {"b": 3}, "s": "a", "s": null, "v": [3]}',
    ).elements()
    assert element.pop("v").tolist() == [3]
    assert element == {"x": 2, "s": None, "o": {"a": None, "b": 3}}
    with pytest.raises(JsonParseError, match="expected int64"):
        parse(schema, b'{"x": "a", "x": 1}')


def test_keys_are_compared_without_their_escapes() -> None:
    record = '{"\\u00e9\\n": 1, "\\ud83d\\ude42": 2, "é": 3, "\\u0061bcdefghijklm": 4}'.encode()
    (element,) = parse({"é\n": int, "\U0001f642": int, "a": int}, record).elements()
    assert element == {"é\n": 1, "\U0001f642": 2, "a": None}


def test_lists_of_text_and_of_bools() -> None:
    chunk = parse({"t": VarLen(str), "b": VarLen(bool)}, b'{"t": ["a", "\\n", ""], "b": [true, false]}', b'{"t": []}')
    first, second = chunk.elements()
    assert first["t"].tolist() == ["a", "\n", ""]
    assert first["b"].tolist() == [True, False]
    assert first["b"].dtype == np.bool_
    assert second["t"].tolist() == []
    assert second["b"] is None


def test_a_record_cut_off_anywhere_is_refused() -> None:
    schema = {"a": int, "o": {"b": VarLen(float), "s": str}}
    record = '{"a": -12, "o": {"b": [1.5e1, 2], "s": "\\u00e9\\ud83d\\ude42é"}, "x": [{"y": null}, true]}'.encode()
    assert parse(schema, record).elements()[0]["o"]["s"] == "é\U0001f642é"
    for end in range(len(record)):
        with pytest.raises(JsonParseError, match=r"x\.jsonl"):
            parse(schema, record[:end])


def test_many_values_of_lists_and_rows() -> None:
    rows = 600
    records = [b'{"v": %s, "n": %d}' % (str(list(range(row % 7))).encode(), row) for row in range(rows)]
    chunk = parse({"n": np.int32, "v": VarLen(np.int16)}, *records)
    elements = chunk.elements()
    assert [element["n"] for element in elements] == list(range(rows))
    assert all(element["v"].tolist() == list(range(row % 7)) for row, element in enumerate(elements))


def test_chunks_with_and_without_missing_values_join() -> None:
    schema = {"i": int, "s": str, "v": VarLen(int)}
    chunks = [
        parse(schema, b'{"i": 1, "s": "a", "v": [1]}', b'{"i": 2, "s": "b", "v": []}'),
        parse(schema, b'{"s": "c"}', b'{"i": 4, "v": [4, 4]}'),
    ]
    elements = [str(element) for chunk in chunks for element in chunk.elements()]
    joined = concat(chunks)
    assert isinstance(joined, Columns)
    assert list(map(str, joined.elements())) == elements
    taken = gather(chunks, np.array([1, 0], np.int32), np.array([1, 0], np.int64))
    assert list(map(str, taken.elements())) == [elements[3], elements[0]]


def test_no_records_give_no_rows() -> None:
    assert parse({"i": int, "s": str, "v": VarLen(str)}).elements() == []


def test_text_refers_to_the_buffer_unless_one_has_an_escape(request: pytest.FixtureRequest) -> None:
    if "twin" in request.node.name or not _native.HAVE_NATIVE:
        pytest.skip("the twin copies all text")
    chunk = chunk_of(b'{"x": "a", "y": "b"}', b'{"x": "c", "y": "\\n"}')
    plain, escaped = parser_of({"x": str, "y": str}).parse(chunk, lambda row: ("", row)).leaves
    (records,) = chunk.leaves
    assert isinstance(plain, VarColumn)
    assert isinstance(escaped, VarColumn)
    assert isinstance(records, VarColumn)
    assert plain.values is records.values
    assert not np.shares_memory(escaped.values, plain.values)


def test_the_spec_and_the_structure_are_those_of_the_schema() -> None:
    parser = parser_of({"a": int, "o": {"s": str, "v": VarLen(np.float32)}})
    assert parser.structure.paths() == ["a", "o.s", "o.v"]
    assert [tuple(spec) for spec in parser.element_specs] == [
        ((), np.dtype(np.int64), False),
        ((), np.dtype(object), False),
        ((None,), np.dtype(np.float32), True),
    ]
    assert pickle.loads(pickle.dumps(parser)) == parser


NESTED: dict[str, Any] = {"a": int}
for _ in range(40):
    NESTED = {"a": NESTED}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "schema must contain at least one key"),
        ({"a": {}}, r"schema\['a'\] must contain at least one key"),
        ([("a", int)], "schema must be a dict"),
        ({1: int}, "keys of schema must be str"),
        ({"\ud800": int}, "keys of schema must be str"),
        ({"a": bytes}, r"schema\['a'\] is bytes, which JSON does not have. Declare str, and decode it in map"),
        ({"a": {"b": object}}, r"schema\['a'\]\['b'\] must be str, bool, a dtype"),
        ({"a": np.float16}, "float32 or float64"),
        ({"a": "nonsense"}, "must be str, bool"),
        ({"a": None}, "must be str, bool"),
        ({"a": [int]}, r"Declare a list of numbers as asd.VarLen\(dtype\)"),
        ({"a": FixedLen((2,), int)}, r"Declare a list of numbers as asd.VarLen\(dtype\)"),
        ({"a": VarLen(bytes)}, "is bytes, which JSON does not have"),
        (NESTED, "at most 32 levels"),
    ],
)
def test_other_schemas_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        checked_json_schema(schema)


def test_damaged_arguments_are_refused() -> None:
    native = pytest.importorskip("aiostream_data._native.json_rows")
    buffer, one = np.frombuffer(b"{}", np.uint8), np.array([0], np.int64)
    node = json_rows_py.JsonNode
    for starts, lengths in ((one, one + 3), (one - 1, one), (one, one - 1), (one, one[:0])):
        with pytest.raises(IndexError, match="outside the buffer"):
            native.parse_json(buffer, starts, lengths, (node(json_rows_py.OBJECT, False, (), 1),))
    for fields, behind in (((b"a", 0),), 1), (((b"a", 2),), 1), ((), 2), ((), 0):
        with pytest.raises(IndexError, match="outside the schema"):
            native.parse_json(buffer, one, one + 2, (node(json_rows_py.OBJECT, False, fields, behind),))
