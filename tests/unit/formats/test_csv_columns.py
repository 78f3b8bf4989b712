"""Parsing CSV records to typed columns, and inferring their types."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from aiostream_data import CsvParseError, PlanError
from aiostream_data.formats.csv_columns import CsvParser, checked_schema, checked_select
from aiostream_data.formats.csv_rules import CsvRecords, CsvSyntax
from aiostream_data.formats.csv_schema import INFERRED_ROWS, Inference
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Columns, concat, gather, records_chunk
from aiostream_data.rows.row_ids import RowIds


def chunk_of(*records: bytes) -> Columns:
    lengths = np.array([len(record) + 1 for record in records], np.int64)
    values = np.frombuffer(b"".join(record + b"\n" for record in records), np.uint8)
    column = VarColumn(values, np.cumsum(lengths) - lengths, lengths - 1)
    return records_chunk(CsvRecords(column, 2), RowIds.run(0, 0, len(records)))


def parser_of(schema: dict[str, Any], **others: Any) -> CsvParser:
    types = checked_schema(schema)
    return CsvParser(tuple(types), tuple(types.values()), others.pop("select", tuple(types)), **others)


def parse(parser: CsvParser, *records: bytes) -> Columns:
    return parser.parse(chunk_of(*records), lambda row: ("s3://bucket/x.csv?secret=1", 10 + row))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (np.int8, b"-128", np.int8(-128)),
        (np.uint64, b"18446744073709551615", np.uint64(2**64 - 1)),
        (int, b" +7\t", 7),
        (np.float32, b"0.1", np.float32(0.1)),
        (float, b"-1e400", float("-inf")),
        (float, b".5", 0.5),
        (bool, b"TRUE", True),
        (bool, b"0", False),
        (str, b" a ", " a "),
        (bytes, b'"a""b"', b'a"b'),
        ("int16", b'"3"', np.int16(3)),
        ("str", b"a\x00b", "a\x00b"),
    ],
)
def test_fields_become_values_of_the_declared_type(kind: Any, text: bytes, value: Any) -> None:
    (element,) = parse(parser_of({"x": kind}), text).elements()
    assert element["x"] == value
    assert type(element["x"]) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (int, b"1.0", r"'1.0' is not int64; declare the type of the column, as in schema={'x': np.float64, ...}, or"),
        (int, b"a", r"'a' is not int64; declare the type of the column, as in schema={'x': str, ...}, or add"),
        (int, b"1_0", "'1_0' is not int64"),
        (np.int8, b"128", "'128' is out of range for int8"),
        (np.uint8, b"-1", "'-1' is out of range for uint8"),
        (float, b"1e", "is not float64"),
        (bool, b"yes", "'yes' is not bool"),
        (int, b'"a"b', "text follows the closing quote"),
        (int, b'"a', "a quote is not closed"),
        (int, b"0123456789x" * 30, r"\.\.\.' is not int64"),
    ],
)
def test_other_fields_are_refused_with_their_line_and_column(kind: Any, text: bytes, message: str) -> None:
    with pytest.raises(CsvParseError, match=message) as raised:
        parse(parser_of({"y": str, "x": kind}), b'"a\nb",', b"c," + text, b"d," + text)
    error = raised.value
    assert (error.record, error.line, error.column) == (11, 4, "x")
    assert str(error).startswith("s3://bucket/x.csv")
    assert "line 4: column 'x'" in str(error)
    assert "secret=1" not in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_another_number_of_fields_is_refused() -> None:
    parser = parser_of({"a": int, "b": int})
    with pytest.raises(CsvParseError, match="line 3: expected 2 fields, found 3 in '1,2,3'; check the delimiter"):
        parse(parser, b"1,2", b"1,2,3")
    with pytest.raises(CsvParseError, match="line 2: expected 2 fields, found 1 in '1'"):
        parse(parser, b"1")


def test_the_line_is_unknown_behind_a_gathered_column() -> None:
    chunk = chunk_of(b"a")
    (records,) = chunk.leaves
    assert isinstance(records, VarColumn)
    plain = records_chunk(VarColumn(records.values, records.starts, records.lengths), chunk.ids)
    with pytest.raises(CsvParseError, match=r"x\.csv record 5: column"):
        parser_of({"x": int}).parse(plain, lambda row: ("x.csv", 5 + row))


def test_missing_values_are_none_and_only_unquoted_text_can_be_missing() -> None:
    parser = parser_of({"i": int, "f": float, "s": str}, na_values=("", "NA"))
    found = parse(parser, b"1,2.5,a", b",,", b'"","",""', b'NA,"NA","NA"', b"1,nan,NA")
    elements = found.elements()
    assert elements[:4] == [
        {"i": 1, "f": 2.5, "s": "a"},
        {"i": None, "f": None, "s": None},
        {"i": None, "f": None, "s": ""},
        {"i": None, "f": None, "s": "NA"},
    ]
    assert np.isnan(elements[4]["f"])
    assert elements[4]["s"] is None


def test_without_na_values_an_empty_text_is_a_value_and_an_empty_number_an_error() -> None:
    assert parse(parser_of({"s": str}, na_values=()), b"").elements() == [{"s": ""}]
    with pytest.raises(CsvParseError, match="'' is not int64"):
        parse(parser_of({"x": int, "y": int}, na_values=()), b"1,")


def test_chunks_with_and_without_missing_values_join() -> None:
    parser = parser_of({"i": int, "s": str})
    chunks = [parse(parser, b"1,a", b"2,b"), parse(parser, b",c", b"4,"), parse(parser, b"5,e")]
    elements = [element for chunk in chunks for element in chunk.elements()]
    joined = concat(chunks)
    assert isinstance(joined, Columns)
    assert joined.elements() == elements
    which, rows = np.array([2, 1, 0, 1], np.int32), np.array([0, 1, 1, 0], np.int64)
    taken = gather(chunks, which, rows)
    assert isinstance(taken, Columns)
    assert taken.elements() == [elements[4], elements[3], elements[1], elements[2]]


def test_selected_columns_come_in_their_order_and_others_are_not_parsed() -> None:
    parser = parser_of({"a": int, "b": int, "c": str}, select=("c", "a"))
    found = parse(parser, b"1,not a number,x")
    assert found.elements() == [{"c": "x", "a": 1}]
    assert list(found.elements()[0]) == ["c", "a"]
    assert [spec[1] for spec in parser.element_specs] == [object, np.dtype(np.int64)]


def test_text_refers_to_the_buffer_unless_a_field_has_doubled_quotes() -> None:
    chunk = chunk_of(b'a,"b"', b'c,"d""e"')
    found = parser_of({"x": str, "y": str}).parse(chunk, lambda row: ("", row))
    plain, doubled, records = *found.leaves, chunk.leaves[0]
    assert isinstance(plain, VarColumn)
    assert isinstance(doubled, VarColumn)
    assert isinstance(records, VarColumn)
    assert plain.values is records.values
    assert not np.shares_memory(doubled.values, plain.values)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "at least one column"),
        ([("a", int)], "schema must be a dict"),
        ({1: int}, "names of schema must be str"),
        ({"a": object}, r"schema\['a'\] must be str, bytes, bool, or a dtype"),
        ({"a": np.float16}, "float32 or float64"),
        ({"a": "nonsense"}, "must be str, bytes, bool"),
        ({"a": None}, "must be str, bytes, bool"),
    ],
)
def test_other_schemas_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        checked_schema(schema)


def test_columns_that_do_not_exist_cannot_be_selected() -> None:
    with pytest.raises(PlanError, match="select contains 'z', but the columns are 'a', 'b'"):
        checked_select(("a", "z"), ("a", "b"))


def inferred(*texts: bytes, encoding: str | None = "utf-8") -> Any:
    return Inference("x.csv", CsvSyntax(), encoding, ("", "NA")).types(("x", "y"), [text + b",z" for text in texts])[0]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((b"1", b"-2", b'"3"', b""), np.dtype(np.int64)),
        ((b"1", b"2.5", b"NA"), np.dtype(np.float64)),
        ((b"1", b"9223372036854775808"), np.dtype(np.uint64)),
        ((b"-1", b"9223372036854775808"), str),
        ((b"18446744073709551616", b"2.5"), np.dtype(np.float64)),
        ((b"true", b"False", b"NA"), np.dtype(np.bool_)),
        ((b"true", b"1"), str),
        ((b"1", b"2024-01-01"), str),
        ((b"", b"NA"), str),
        ((), str),
        ((*[b"1"] * INFERRED_ROWS, b"a"), np.dtype(np.int64)),
        ((b"1,1", b"2"), np.dtype(np.int64)),
    ],
)
def test_the_first_type_that_all_values_have_is_inferred(texts: tuple[bytes, ...], expected: Any) -> None:
    assert inferred(*texts) == expected


def test_text_without_an_encoding_is_inferred_as_bytes() -> None:
    assert inferred(b"a", encoding=None) is bytes
