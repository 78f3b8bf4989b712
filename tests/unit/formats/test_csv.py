"""Splitting CSV streams into records, at any block boundary and with damage."""

from __future__ import annotations

import numpy as np
import pytest

from aiostream_data import CsvSchemaError, PlanError
from aiostream_data.formats.base import Loss
from aiostream_data.formats.csv import CsvFormat
from aiostream_data.formats.csv_rules import CsvRecords, CsvSyntax
from aiostream_data.formats.skipping_stream import SkippingStream
from aiostream_data.formats.stream import RecordStream
from aiostream_data.testing.formats import Damage, FramingSuite, blocks_of, read_blocks

HEADER = b"id,text\r\n"
STREAM = HEADER + b'1,plain\r\n\r\n2,"quoted, with ""quotes"""\r\n3,"two\r\nlines"\n4,5" disk\n\n"5",""\n6,last'
RECORDS = (b"1,plain", b'2,"quoted, with ""quotes"""', b'3,"two\r\nlines"', b'4,5" disk', b'"5",""', b"6,last")


class TestCsv(FramingSuite):
    description = CsvFormat(names=("id", "text"))
    stream = STREAM
    records = RECORDS
    damaged = (
        Damage(HEADER + b'1,a\n2,"open\n3,b\n', [b"1,a"], 13),
        Damage(HEADER + b"1,a\n2,\xff\n3,b\n", [b"1,a"], 13),
        Damage(HEADER + b"1,a\n\n2,\xc3", [b"1,a"], 14),
    )


class TestCsvWithMark(FramingSuite):
    description = CsvFormat(names=("id", "text"))
    stream = b'\xef\xbb\xbf"id","text"\n1,a\n'
    records = (b"1,a",)


class TestCsvWithoutHeader(FramingSuite):
    description = CsvFormat(header=False)
    stream = b'\xef\xbb\xbf"a\nb",c\r\n\n\r\nd,e\r'
    records = (b'"a\nb",c', b"d,e")


class TestTabs(FramingSuite):
    description = CsvFormat(syntax=CsvSyntax("\t", None), names=("id", "text"))
    stream = b'id\ttext\n1\t"a\n2\tb""\n'
    records = (b'1\t"a', b'2\tb""')


class TestColumnsInAnotherOrder(FramingSuite):
    description = CsvFormat(names=("text", "id"))
    stream = STREAM
    records = (b"plain,1", b'"quoted, with ""quotes""",2', b'"two\r\nlines",3', b'5" disk,4', b'"","5"', b"last,6")


class TestLatin1(FramingSuite):
    description = CsvFormat(names=("é", "b"), encoding="latin-1")
    stream = 'é,b\n1,"ü\n"\n2,ß\n'.encode("latin-1")
    records = ('1,"ü\n"'.encode(), "2,ß".encode())


class TestBytes(FramingSuite):
    description = CsvFormat(header=False, encoding=None)
    stream = b'\xff,\x00\n"\n\xfe",1\n'
    records = (b"\xff,\x00", b'"\n\xfe",1')


class TestShortLimit(FramingSuite):
    description = CsvFormat(header=False, max_line_nbytes=8)
    stream = b"12345678\r\n"
    records = (b"12345678",)
    damaged = (Damage(b'1\n2,"3456789012345\n', [b"1"], 2), Damage(b"1\n234567890\n3\n", [b"1"], 2))


class TestHeaderOnly(FramingSuite):
    description = CsvFormat(names=("id", "text"))
    stream = b"id,text"
    records = ()


def test_long_records_in_many_small_blocks() -> None:
    record = b'1,"' + b"x,\n" * 100_000 + b'"'
    stream = HEADER + b"0,a\n" + record + b"\n" + record
    assert read_blocks(CsvFormat(), stream, [7001] * 100).records == [b"0,a", record, record]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"id,txt\n", r"stream: column 'text' of the schema is not in the header \['id', 'txt'\]; declare every"),
        (b"id\n", "column 'text' of the schema is not in the header"),
        (b"id,text,more\n", "column 'more' of the header is not in the schema; declare every"),
        (b"1,2\n", "pass header=False"),
        (b"id,id\n", "two columns named 'id'"),
        (b"id,t\xff\n", "not valid utf-8"),
        (b'id,"a"b\n', "text after a closing quote"),
        (b'id,"text', "ends inside a quoted name"),
    ],
)
def test_another_header_is_refused(header: bytes, message: str) -> None:
    for sizes in ([], [1] * len(header)):
        with pytest.raises(CsvSchemaError, match=message):
            read_blocks(CsvFormat(names=("id", "text")), header, sizes)


def test_a_header_of_another_file_is_named() -> None:
    description = CsvFormat(names=("id", "text"), named_in="s3://b/first.csv")
    with pytest.raises(CsvSchemaError, match=r"column 'text' of the header of s3://b/first\.csv is not in") as raised:
        read_blocks(description, b"id,txt\n")
    assert raised.value.column == "text"


def test_a_header_that_never_ends_is_refused() -> None:
    with pytest.raises(CsvSchemaError, match="max_line_nbytes=100"):
        read_blocks(CsvFormat(max_line_nbytes=100), b'"' + b"x\n" * 100)


def skipped(stream: bytes, description: CsvFormat, sizes: list[int]) -> tuple[list[bytes], list[Loss]]:
    losses: list[Loss] = []
    reader = SkippingStream(description, "memory://stream", "", report=losses.append, nbytes=len(stream))
    columns = [column for block in blocks_of(stream, sizes) for column in reader.feed(block, 0)]
    columns.extend(reader.finish())
    return [record for column in columns for record in column.elements()], losses


def test_skipping_loses_only_damaged_records_in_blocks_of_any_size() -> None:
    stream = HEADER + b'1,a\n2,\xff\n3,"b\n"\n4,"' + b"x" * 30 + b'"\n5,"open\n6,c\n' + b"7,d\n" * 20
    description = CsvFormat(names=("id", "text"), max_line_nbytes=20)
    expected = [b"1,a", b'3,"b\n"', b"6,c", *[b"7,d"] * 20]
    whole = skipped(stream, description, [])
    assert whole[0] == expected
    assert [(loss.offset, loss.nbytes) for loss in whole[1]] == [(13, 4), (24, 35), (59, 8)]
    for size in range(1, 40):
        assert skipped(stream, description, [size] * (len(stream) // size)) == whole


def test_skipping_keeps_the_order_of_the_columns() -> None:
    stream = b"text,id\na,1\n\xff,2\nb,3\n\xff,4\nc,5\n"
    for sizes in ([], [1] * len(stream)):
        assert skipped(stream, CsvFormat(names=("id", "text")), sizes)[0] == [b"1,a", b"3,b", b"5,c"]


def test_an_open_quote_at_the_end_is_named_with_its_line() -> None:
    _, error = read_blocks(CsvFormat(names=("id", "text")), HEADER + b'1,"a\n"\n\n2,"b\n')
    assert error is not None
    assert "record that begins in line 5; the closing quote is missing" in str(error)


def test_columns_know_the_line_of_each_record() -> None:
    for sizes in ([], [1] * len(STREAM), [13] * 10):
        reader = RecordStream(CsvFormat(names=("id", "text")), "memory://stream", "")
        columns = [column for block in blocks_of(STREAM, sizes) for column in reader.feed(block, 0)]
        columns.extend(reader.finish())
        assert all(isinstance(column, CsvRecords) for column in columns)
        lines = [column.line_of(row) for column in columns for row in range(len(column))]  # type: ignore[attr-defined]
        assert lines == [2, 4, 5, 7, 9, 10]


def test_columns_of_at_most_the_rows_that_are_asked_for() -> None:
    framer = CsvFormat(header=False).framer("memory://stream")
    columns = list(framer.feed(np.frombuffer(b"1\n" * 10, np.uint8), 0, 3))
    assert [len(column) for column in columns] == [3, 3, 3, 1]


def test_a_framer_resumes_at_any_record() -> None:
    reader = RecordStream(CsvFormat(names=("id", "text")), "memory://stream", "")
    (column,) = reader.feed(np.frombuffer(STREAM, np.uint8), 0)
    for row, start in enumerate(column.starts.tolist()):
        offset = reader.offset_of(start)
        assert offset is not None
        again = RecordStream(CsvFormat(names=("id", "text")), "memory://stream", "", offset)
        found = [*again.feed(np.frombuffer(STREAM[offset:], np.uint8), 0), *again.finish()]
        assert [record for one in found for record in one.elements()] == list(RECORDS[row:])


@pytest.mark.parametrize("character", ["", "ab", "\n", "\r", "é", 1, None, b","])
def test_delimiters_are_one_character(character: object) -> None:
    with pytest.raises(PlanError, match="delimiter must be one ASCII character"):
        CsvSyntax(character)  # type: ignore[arg-type]


def test_delimiter_and_quote_differ() -> None:
    with pytest.raises(PlanError, match="must differ"):
        CsvSyntax('"')
