"""CSV kernels against their twins, and whole files against the module csv, pyarrow and Python's numbers."""

from __future__ import annotations

import csv
import io
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiostream_data._native import csv_rows_py as twin
from aiostream_data.formats.csv import CsvFormat
from aiostream_data.formats.csv_columns import CsvParser
from aiostream_data.formats.csv_rules import COMMAS, CsvSyntax
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.testing.formats import read_blocks

TEXTS = st.text(st.sampled_from('a1,;"\n\r\t é'), max_size=8)
ROWS = st.lists(st.lists(TEXTS, min_size=2, max_size=4), max_size=8)
KINDS = st.lists(st.sampled_from([0, 1, *twin.KINDS.values()]), min_size=1, max_size=3)
NUMBERS = st.text(st.sampled_from("0123456789+-.eE \tinfaINFtrue"), max_size=12)


def written(rows: list[list[str]], **dialect: Any) -> bytes:
    made = io.StringIO(newline="")
    csv.writer(made, **dialect).writerows(rows)
    return made.getvalue().encode()


def parsed(records: list[bytes], parser: CsvParser) -> list[dict[str, Any]]:
    lengths = np.array([len(record) for record in records], np.int64)
    column = VarColumn(np.frombuffer(b"".join(records), np.uint8), np.cumsum(lengths) - lengths, lengths)
    chunk = records_chunk(column, RowIds.run(0, 0, len(records)))
    return parser.parse(chunk, lambda row: ("memory://x", row)).elements()


def text_parser(columns: int, syntax: CsvSyntax = COMMAS) -> CsvParser:
    names = tuple(map(str, range(columns)))
    return CsvParser(names, (str,) * columns, names, (), syntax)


@given(
    rows=ROWS,
    delimiter=st.sampled_from(",;\t"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    sizes=st.lists(st.integers(0, 9), max_size=20),
)
def test_files_of_the_module_csv_are_read_as_it_reads_them(
    rows: list[list[str]], delimiter: str, quoting: Any, sizes: list[int]
) -> None:
    stream = written(rows, delimiter=delimiter, quoting=quoting)
    syntax = CsvSyntax(delimiter)
    records, error = read_blocks(CsvFormat(syntax=syntax, header=False), stream, sizes, 3)
    assert error is None
    assert len(records) == len(rows)
    for record, row in zip(records, rows, strict=True):
        assert list(parsed([record], text_parser(len(row), syntax))[0].values()) == row


@given(lines=st.text(st.sampled_from('a,"\n'), max_size=24), sizes=st.lists(st.integers(0, 9), max_size=12))
@example('"a""",b\n', [3])
@example('a"b,"c', [])
def test_odd_quotes_are_read_as_the_module_csv_reads_them_or_refused(lines: str, sizes: list[int]) -> None:
    records, error = read_blocks(CsvFormat(header=False), lines.encode(), sizes)
    try:
        expected = [row for row in csv.reader(io.StringIO(lines, newline=""), strict=True) if row]
    except csv.Error:
        syntax = CsvSyntax()
        assert error is not None or any(syntax.fields(record) is None for record in records)
        return
    assert error is None
    assert [list(parsed([record], text_parser(record_width(record)))[0].values()) for record in records] == expected


def record_width(record: bytes) -> int:
    fields = CsvSyntax().fields(record)
    assert fields is not None
    return len(fields)


def same(found: Any, expected: Any) -> bool:
    if isinstance(found, tuple) and not isinstance(found, twin.CsvFault):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, np.ndarray):
        is_float = found.dtype.kind == "f"
        return found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=is_float)
    return bool(found == expected)


@given(
    data=st.binary(max_size=40) | st.text(st.sampled_from('a1.,"\n\r'), max_size=40).map(str.encode),
    bounds=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    quote=st.sampled_from([ord('"'), -1]),
    most=st.sampled_from([1, 2, 100]),
    state=st.integers(0, 3),
    kinds=KINDS,
    missing=st.sampled_from([[], [b""], [b"", b"a", b"11"]]),
    draw=st.data(),
)
@settings(max_examples=150)
def test_native_kernels_return_the_same_as_their_twins(
    data: bytes, bounds: tuple[int, int], quote: int, most: int, state: int, kinds: list[int], missing: Any, draw: Any
) -> None:
    native = pytest.importorskip("aiostream_data._native.csv_rows")
    buffer = np.frombuffer(data, np.uint8)
    start, stop = sorted(min(bound, len(data)) for bound in bounds)
    where = buffer, start, stop, ord(","), quote
    found = native.find_csv_records(*where, most)
    assert same(found, twin.find_csv_records(*where, most))
    assert native.scan_csv(*where, state) == twin.scan_csv(*where, state)
    spans = buffer, found[0], found[1]
    columns, expected = (module.parse_csv(*spans, kinds, ord(","), quote, missing) for module in (native, twin))
    assert isinstance(columns, twin.CsvFault) == isinstance(expected, twin.CsvFault)
    assert columns == expected if isinstance(columns, twin.CsvFault) else all(map(same, columns, expected))
    order = np.array(draw.draw(st.permutations(range(len(kinds)))), np.int64)
    assert same(native.reorder_csv(*spans, order, 44, quote), twin.reorder_csv(*spans, order, 44, quote))
    assert same(native.unescape_csv(*spans, 34), twin.unescape_csv(*spans, 34))


@given(st.lists(NUMBERS, min_size=1, max_size=4))
@settings(max_examples=150)
def test_native_numbers_are_those_of_the_twin(texts: list[str]) -> None:
    native = pytest.importorskip("aiostream_data._native.csv_rows")
    lengths = np.array([len(text) for text in texts], np.int64)
    spans = np.frombuffer("".join(texts).encode(), np.uint8), np.cumsum(lengths) - lengths, lengths
    for kind in twin.KINDS.values():
        found, expected = (module.parse_csv(*spans, [kind], 44, 34, []) for module in (native, twin))
        is_fault = isinstance(expected, twin.CsvFault)
        assert found == expected if is_fault else all(map(same, found, expected)), (kind, texts)


@given(
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("d", struct.pack("Q", bits))[0]),
    st.integers(0, 24),
    st.integers(-400, 400),
)
@example(5e-324, 24, 0)
@example(2.2250738585072014e-308, 17, 0)
@example(9007199254740993.0, 24, 0)
def test_floats_are_the_nearest_of_the_written_number(number: float, digits: int, power: int) -> None:
    texts = [repr(number), f"{number:.{digits}e}", f"{number:.{digits}e}".split("e")[0] + f"e{power}"]
    parser = CsvParser(("x",), (np.dtype(np.float64),), ("x",), ())
    for text in texts if math.isfinite(number) else texts[:1]:
        (found,) = parsed([text.encode()], parser)
        assert struct.pack("d", found["x"]) == struct.pack("d", float(text)) or math.isnan(number)


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(allow_nan=False),
            st.none() | st.booleans(),
            st.text(st.characters(codec="utf-8"), min_size=1, max_size=6),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_files_of_pyarrow_are_read_to_equal_values(rows: list[tuple[Any, ...]]) -> None:
    pa, pc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    names = ("i", "f", "b", "s")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    types = (pa.int64(), pa.float64(), pa.bool_(), pa.string())
    table = pa.table(columns, schema=pa.schema(list(zip(names, types, strict=True))))
    sink = pa.BufferOutputStream()
    pc.write_csv(table, sink)
    records, error = read_blocks(CsvFormat(names=names), sink.getvalue().to_pybytes())
    assert error is None
    dtypes = tuple(map(np.dtype, (np.int64, np.float64, np.bool_)))
    assert parsed(records, CsvParser(names, (*dtypes, str), names)) == table.to_pylist()
