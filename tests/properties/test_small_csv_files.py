"""Many CSV files split in one pass have the records and lines that a stream for each file yields."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiostream_data.errors import DataError
from aiostream_data.formats.base import LEFT
from aiostream_data.formats.csv import CsvFormat
from aiostream_data.formats.csv_objects import CsvObjectRecords
from aiostream_data.formats.csv_rules import CsvRecords, CsvSyntax
from aiostream_data.formats.small_objects import split_objects
from aiostream_data.formats.stream import RecordStream

FORMATS = [
    CsvFormat(),
    CsvFormat(names=("a", "b")),
    CsvFormat(header=False),
    CsvFormat(header=False, syntax=CsvSyntax(quote=None)),
    CsvFormat(header=False, encoding=None, max_line_nbytes=5),
    CsvFormat(names=("a", "b"), encoding="latin-1"),
    CsvFormat(header=False, encoding="utf-8-sig"),
]
HEADERS = [b"a,b\n", b"b,a\r\n", b'"a","b"\n', b"\xef\xbb\xbfa,b\n", b"\xef\xbb\xbf", b"\n", b""]
PIECES = [b'"', b'"1\n2",3\n', b"4,5\n", b"6,7\r\n", b"8,9", b"\n", b"\r", '"\u00e9"'.encode(), b"\xc3", b"x" * 6]
FILES = st.tuples(st.sampled_from(HEADERS), st.lists(st.sampled_from(PIECES), max_size=4)).map(
    lambda parts: b"".join([parts[0], *parts[1]])
)


def streamed(format: CsvFormat, data: bytes) -> list[tuple[bytes, int | None]] | None:
    """Return the records of one file with their lines, or None if the file is damaged."""
    stream = RecordStream(format, "memory://x", "")
    try:
        columns = [*stream.feed(np.frombuffer(data, np.uint8).copy(), 0), *stream.finish()]
    except DataError:
        return None
    return [
        (column.element(row), column.line_of(row) if isinstance(column, CsvRecords) else None)
        for column in columns
        for row in range(len(column))
    ]


@settings(max_examples=500)
@example(CsvFormat(names=("a", "b")), [b"a,b\n1,2\n", b"b,a\n3,4\n"])
@example(CsvFormat(header=False), [b'1\n"\n', b'2\n"\n3\n'])
@example(CsvFormat(header=False), [b"1\r", b"\n2\n"])
@given(st.sampled_from(FORMATS), st.lists(FILES, min_size=1, max_size=4))
def test_the_records_and_lines_are_those_of_a_stream_for_each_file(format: CsvFormat, files: Sequence[bytes]) -> None:
    bounds = np.cumsum([2, *map(len, files)])
    values, is_plain = np.frombuffer(b'"\n' + b"".join(files), np.uint8), np.ones(len(files), np.bool_)
    column, rows = split_objects(format, ["memory://x"] * len(files), values, bounds, is_plain, 1 << 40)
    expected = [streamed(format, data) for data in files]
    assert rows.tolist() == [LEFT if each is None else len(each) for each in expected]
    records = [record for each in expected for record in each or ()]
    assert column.elements() == [data for data, _ in records]
    if isinstance(column, CsvObjectRecords):
        assert [column.line_of(row) for row in range(len(column))] == [line for _, line in records]
