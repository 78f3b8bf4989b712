"""Decoding JSON records to the values of ``json.loads``, with msgspec and with the standard library."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from aiostream_data import JsonParseError
from aiostream_data._native.json_rows_py import MOST_DEPTH
from aiostream_data.formats import json_values
from aiostream_data.formats.json_lines import JsonRecords
from aiostream_data.formats.json_values import JsonValues, problem_of
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Columns, records_chunk
from aiostream_data.rows.row_ids import RowIds


@pytest.fixture(params=["msgspec", "json"], autouse=True)
def _library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "msgspec":
        pytest.importorskip("msgspec")
    else:
        monkeypatch.setitem(sys.modules, "msgspec", None)
    json_values.loader.cache_clear()
    json_values.lines_loader.cache_clear()
    yield
    monkeypatch.undo()
    json_values.loader.cache_clear()
    json_values.lines_loader.cache_clear()


def chunk_of(*records: bytes, gap: bytes = b"\n") -> Columns:
    lengths = np.array([len(record) for record in records], np.int64)
    values = np.frombuffer(b"".join(record + gap for record in records), np.uint8)
    starts = np.cumsum(lengths + len(gap)) - lengths - len(gap)
    column = VarColumn(values, starts, lengths)
    return records_chunk(JsonRecords(column, 2, 100), RowIds.run(0, 0, len(records)))


def parse(*records: bytes, gap: bytes = b"\n") -> list[Any]:
    return JsonValues().parse(chunk_of(*records, gap=gap), lambda row: ("x.jsonl", 10 + row)).elements()


VALUES = (
    b'{"a": 1, "b": [1.5, null, true, "\\u00e9\\ud83d\\ude42"], "c": {"a": {}}}',
    b'{"a": 1, "b": 2, "a": {"x": 3}}',
    b"[]",
    b'[[1], {"x": []}]',
    b'"text"',
    b" 12345678901234567890123 ",
    b"-0.0",
    b"1e-400",
    b"null",
    b"false",
    b'{"": "\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000"}',
    b'["\\\\ud800"]',
)


@pytest.mark.parametrize("gap", [b"\n", b"\r\n", b"\n \n\n", b""])
def test_values_are_those_of_json_loads(gap: bytes) -> None:
    for records in (VALUES, VALUES[:4], VALUES[2:3], ()):
        found = parse(*records, gap=gap)
        assert repr(found) == repr([json.loads(record) for record in records])


@pytest.mark.parametrize(
    "records",
    [
        (b"3 4", b"[1,", b"2]"),
        (b'{"a":1} {"b":2}', b"{}"),
        (b'{"a":[{}', b"{}]}", b"{} {}"),
        (b"[1]\r[2]", b"[3]"),
        (b"[1", b"]"),
        (b'{"a":', b"{}}", b"{}{}"),
        (b"[[]", b",[]]"),
        (b"[],[]", b"[]"),
    ],
)
def test_a_value_must_not_reach_into_the_next_line(records: tuple[bytes, ...]) -> None:
    first = next(row for row, record in enumerate(records) if problem_of(record))
    with pytest.raises(JsonParseError) as raised:
        parse(*records)
    assert raised.value.record == 10 + first


@pytest.mark.parametrize(
    ("record", "message", "place"),
    [
        (b'{"x": NaN}', "NaN is not JSON; write null for a number without a value", 6),
        (b'["NaN", -Infinity]', "-Infinity is not JSON", 8),
        (b"Infinity", "Infinity is not JSON", 0),
        (b"[1e999]", "1e999 is out of range for float64", 0),
        (b"[" + b"1" * 4301 + b"]", "an integer has more than 4300 digits", 0),
        (b'["\xc3\xa9", x]', "expecting value at 'x]'", 7),
        (b'{"a": 1', "expecting ',' delimiter: the record ends too early", 7),
        (b'"\\ud800"', "half of a surrogate pair at ", 1),
        (b'{"a": "\\udddd", "a": 1}', "half of a surrogate pair", 7),
        (b'{"\\uDFFF": 1}', "half of a surrogate pair", 2),
        (b'"a\x00b"', "invalid control character at '", 2),
        (b"[" * 100_000, f"the record nests more than {MOST_DEPTH} lists and objects", 0),
        (b"[" * (MOST_DEPTH + 1) + b"]" * (MOST_DEPTH + 1), f"nests more than {MOST_DEPTH}", 0),
        (b"\xef\xbb\xbf1", "expecting value", 0),
        (b'"\xff"', "not valid utf-8", 1),
    ],
)
def test_other_records_are_refused_with_their_place(record: bytes, message: str, place: int) -> None:
    with pytest.raises(JsonParseError, match=message) as raised:
        parse(b"[]", b"{}", record, b"[]")
    error = raised.value
    assert (error.record, error.line, error.offset) == (12, 4, 106 + place)
    assert len(str(error)) < 300


@pytest.mark.parametrize("record", [b"{", b"[", b'[{"a": 1},'])
def test_the_start_of_a_document_of_several_lines_says_what_to_do(record: bytes) -> None:
    with pytest.raises(JsonParseError, match="a JSON document has several lines, so write one value per line"):
        parse(record)


@pytest.mark.parametrize("record", [b"a,b", b"{'a': 1}", b"[1e999]", b"9" * 5000, b"[" * 300])
def test_every_refused_record_says_what_to_do(record: bytes) -> None:
    with pytest.raises(JsonParseError, match=r"skip such records with on_error='skip'$"):
        parse(record)


def test_the_deepest_records_and_many_brackets_are_read() -> None:
    deep = b"[" * MOST_DEPTH + b"]" * MOST_DEPTH
    wide = b'{"a": [' + b", ".join([b'[{"b": "]]]"}]'] * 1000) + b"]}"
    text = json.dumps("[" * 1000).encode()
    assert parse(deep, wide, text, b"[]") == [json.loads(record) for record in (deep, wide, text, b"[]")]


def test_an_error_of_a_column_without_places_names_the_record() -> None:
    chunk = chunk_of(b"[]", b"[")
    (records,) = chunk.leaves
    assert isinstance(records, VarColumn)
    plain = records_chunk(VarColumn(records.values, records.starts, records.lengths), chunk.ids)
    with pytest.raises(JsonParseError, match=r"x\.jsonl record 6: expecting value") as raised:
        JsonValues().parse(plain, lambda row: ("x.jsonl", 5 + row))
    assert (raised.value.line, raised.value.offset) == (None, None)


def test_rows_in_another_order_are_decoded_in_this_order() -> None:
    chunk = chunk_of(b"[1]", b"[2]", b"[3]")
    (records,) = chunk.leaves
    assert isinstance(records, VarColumn)
    for rows in ([2, 0, 1], [0, 2], [1, 1]):
        taken = records_chunk(records.take(np.array(rows)), chunk.ids.take(np.array(rows)))
        assert JsonValues().parse(taken, lambda row: ("", row)).elements() == [[row + 1] for row in rows]


@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("record", [b'{"a": [1]}', b'{"a": [}'])
def test_the_garbage_collector_is_left_as_it_was(record: bytes, is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        with suppress(JsonParseError):
            parse(record, record)
        assert gc.isenabled() is is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
