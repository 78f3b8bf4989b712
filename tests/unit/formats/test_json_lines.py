"""Splitting JSON lines streams into records, at any block boundary and with damage."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from aiostream_data import PlanError
from aiostream_data.formats.base import Loss
from aiostream_data.formats.json_lines import JsonLinesFormat, JsonRecords
from aiostream_data.formats.long_record import LONG_NBYTES
from aiostream_data.formats.placed_records import PlacedColumn
from aiostream_data.formats.skipping_stream import SkippingStream
from aiostream_data.formats.stream import RecordStream
from aiostream_data.rows.columns import concat_column, gather_column
from aiostream_data.testing.formats import Damage, FramingSuite, blocks_of, read_blocks

STREAM = b'\n{"id": 1}\r\n\r\n \t\r\n {"id": 2, "text": "\xc3\xa9"} \n[]\n\n"a"\n\t\n3'
RECORDS = (b'{"id": 1}', b' {"id": 2, "text": "\xc3\xa9"} ', b"[]", b'"a"', b"3")


class TestJsonLines(FramingSuite):
    description = JsonLinesFormat()
    stream = STREAM
    records = RECORDS
    damaged = (
        Damage(b'1\n\n"\xff"\n2\n', [b"1"], 3),
        Damage(b"1\n\n\xc3", [b"1"], 3),
    )


class TestJsonLinesWithMark(FramingSuite):
    description = JsonLinesFormat()
    stream = b"\xef\xbb\xbf\r\n1\r\n2"
    records = (b"1", b"2")


class TestOneLine(FramingSuite):
    description = JsonLinesFormat()
    stream = b"\xef\xbb\xbf{}"
    records = (b"{}",)


class TestShortLimit(FramingSuite):
    description = JsonLinesFormat(max_line_nbytes=8)
    stream = b"[1,2,34]\r\n"
    records = (b"[1,2,34]",)
    damaged = (Damage(b"1\n[1,2,345]\n3\n", [b"1"], 2), Damage(b"1\n\n" + b" " * 20, [b"1"], 3))


@pytest.mark.parametrize("stream", [b"", b"\n", b" \r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"])
def test_blank_streams_have_no_records(stream: bytes) -> None:
    for sizes in ([], [1] * len(stream)):
        assert read_blocks(JsonLinesFormat(), stream, sizes).records == []


def test_records_know_their_line_and_offset_in_any_blocks() -> None:
    for sizes in ([], [1] * len(STREAM), [9, 9, 9]):
        reader = RecordStream(JsonLinesFormat(), "memory://stream", "")
        columns = [column for block in blocks_of(STREAM, sizes) for column in reader.feed(block, 0)]
        columns += reader.finish()
        places = []
        for column in columns:
            assert isinstance(column, JsonRecords)
            places += [column.place_of(row) for row in range(len(column))]
            assert column.slice(1, len(column)).elements() == column.elements()[1:]
        assert places == [(2, 1), (5, 18), (6, 44), (8, 48), (10, 54)]
        assert all(STREAM[offset:].startswith(record) for (_, offset), record in zip(places, RECORDS, strict=True))


def test_slices_and_copies_know_their_places() -> None:
    reader = RecordStream(JsonLinesFormat(), "memory://stream", "")
    column, _ = *reader.feed(np.frombuffer(STREAM, np.uint8).copy(), 0), *reader.finish()
    part = column.slice(1, 3)
    copy = pickle.loads(pickle.dumps(part))
    assert isinstance(part, JsonRecords)
    assert part.place_of(1) == copy.place_of(1) == (6, 44)
    assert copy.elements() == list(RECORDS[1:3])


def test_the_line_is_unknown_behind_a_resumed_offset() -> None:
    reader = RecordStream(JsonLinesFormat(), "memory://stream", "", 44)
    (column,) = reader.feed(np.frombuffer(STREAM[44:], np.uint8).copy(), 0)
    assert isinstance(column, JsonRecords)
    assert column.place_of(0) == (None, 44)


def test_long_records_have_their_places_and_long_blank_lines_are_none() -> None:
    long = b'"' + b"a" * (2 * LONG_NBYTES) + b'"'
    stream = b"\xef\xbb\xbf" + long + b"\r\n" + b" " * (2 * LONG_NBYTES) + b"\n" + long + b"\n1"
    reader = RecordStream(JsonLinesFormat(), "memory://stream", "")
    columns = [column for block in blocks_of(stream, [1 << 16] * 200) for column in reader.feed(block, 0)]
    columns = [column for column in (*columns, *reader.finish()) if len(column)]
    assert [column.element(0) for column in columns] == [long, long, b"1"]
    offsets = [column.place_of(0) for column in columns if isinstance(column, JsonRecords)]
    assert offsets == [(1, 3), (3, stream.rindex(long)), (4, len(stream) - 1)]


def test_damaged_lines_are_skipped_alone_and_blank_lines_around_them() -> None:
    stream = b'1\n\n"\xff"\n \n2\n' + b"3" * 30 + b"\n\n\n4\n\xff"
    found: list[Loss] = []
    reader = SkippingStream(
        JsonLinesFormat(max_line_nbytes=9), "memory://x", "", 0, None, report=found.append, nbytes=len(stream)
    )
    records = [
        record for column in reader.feed(np.frombuffer(stream, np.uint8).copy(), 0) for record in column.elements()
    ]
    records += [record for column in reader.finish() for record in column.elements()]
    assert records == [b"1", b"2", b"4"]
    assert [loss.offset for loss in found] == [3, 11, 46]


def test_small_objects_are_split_without_blank_lines() -> None:
    objects = [b'{"a": 1}\n\n2', b"", b"\n \n", b"\xef\xbb\xbf3\r\n", b"\t\n4\n5"]
    bounds = np.cumsum([0, *map(len, objects)])
    found = JsonLinesFormat().split_objects(np.frombuffer(b"".join(objects), np.uint8), bounds, 20)
    assert found is not None
    assert found.column.elements() == [b'{"a": 1}', b"2", b"3", b"4", b"5"]
    assert found.rows.tolist() == [2, 0, 0, 1, 2]
    assert isinstance(found.column, PlacedColumn)
    assert [found.column.place_of(row) for row in range(5)] == [(1, 0), (3, 10), (1, 3), (2, 2), (3, 4)]
    damaged = np.frombuffer(b"1\n\xff\n", np.uint8)
    assert JsonLinesFormat().split_objects(damaged, np.array([0, 4]), 5) is None


def test_gathered_records_know_their_places() -> None:
    reader = RecordStream(JsonLinesFormat(), "memory://stream", "")
    first, _ = *reader.feed(np.frombuffer(STREAM, np.uint8).copy(), 0), *reader.finish()
    second = JsonLinesFormat().split_objects(np.frombuffer(b"\n6\n7\n8", np.uint8), np.array([0, 3, 6]), 20)
    resumed = JsonRecords(first.slice(0, 1), None, 70)
    assert second is not None
    parts = [first, second.column, resumed, first.slice(2, 2)]
    together = concat_column(parts)
    picked = gather_column(parts, np.array([1, 0, 2, 0], np.int32), np.array([1, 3, 0, 1], np.int64))
    assert isinstance(together, PlacedColumn)
    assert isinstance(picked, PlacedColumn)
    assert together.place_of(5) == picked.place_of(0) == (1, 0)
    assert [picked.place_of(row) for row in (1, 2, 3)] == [(8, 48), (None, 70), (5, 18)]
    for column in (picked.slice(1, 4), pickle.loads(pickle.dumps(picked)).slice(1, 4), picked.take(np.arange(1, 4))):
        assert isinstance(column, PlacedColumn)
        assert (column.place_of(2), column.elements()) == ((5, 18), [b'"a"', RECORDS[0], RECORDS[1]])
    assert picked.nbytes == gather_column([picked.compact()], np.zeros(4, np.int32), np.arange(4)).nbytes + 64
    assert not isinstance(concat_column([first, picked.compact()]), PlacedColumn)


def test_the_limit_must_be_positive() -> None:
    with pytest.raises(PlanError, match="max_line_nbytes must be"):
        JsonLinesFormat(max_line_nbytes=0)
