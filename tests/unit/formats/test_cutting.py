"""The tail that waits for the rest of its record, and what it costs."""

from __future__ import annotations

import tracemalloc

import numpy as np

from aiostream_data.formats.cutting import RecordTail
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.testing.formats import read_blocks

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


class CountingTail(RecordTail):
    """Counts the bytes that are moved, and the most that are held at once."""

    moved = 0
    most = 0

    def append(self, piece: Bytes) -> None:
        super().append(piece)
        self.moved += len(piece)
        self.most = max(self.most, self.held_nbytes)

    def _joined(self, nbytes: int) -> Bytes:
        self.moved += self.nbytes
        return super()._joined(nbytes)


def test_record_of_many_small_blocks_is_moved_a_constant_number_of_times() -> None:
    framer = TFRecordFormat().framer("memory://x")
    framer._tail = tail = CountingTail()
    stream = np.frombuffer(frame(bytes(200_000)), np.uint8)
    found = [column for at in range(0, len(stream), 512) for column in framer.feed(stream[at : at + 512], 0)]
    assert [len(column) for column in found] == [1]
    assert tail.moved < 4 * len(stream)


def test_a_long_record_is_in_memory_once_from_its_first_byte_to_its_element() -> None:
    nbytes = 40 << 20
    stream = np.frombuffer(frame(bytes(nbytes)) + frame(b"next"), np.uint8)
    framer = TFRecordFormat().framer("memory://x")
    tracemalloc.start()
    try:
        columns = [
            column for at in range(0, len(stream), 1 << 20) for column in framer.feed(stream[at : at + (1 << 20)], 0)
        ]
        element = columns[0].element(0)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert element == bytes(nbytes)
    assert [len(column) for column in columns] == [1, 1]
    assert columns[1].elements() == [b"next"]
    assert most < 1.2 * nbytes


def test_a_view_of_the_tail_is_in_one_piece_and_more_can_be_appended() -> None:
    tail, expected = RecordTail(), b""
    for size in (3, 1, 70_000, 5, 200_000):
        piece = bytes([size % 251]) * size
        tail.append(np.frombuffer(piece, np.uint8))
        expected += piece
        if size != 70_000:
            assert tail.view().tobytes() == expected
    assert tail.nbytes == len(expected)


def test_tail_goes_into_the_headroom_exactly_when_it_fits() -> None:
    for headroom in (2, 3, 4):
        tail = RecordTail()
        tail.append(np.frombuffer(b"abc", np.uint8))
        block = np.zeros(headroom + 2, np.uint8)
        block[headroom:] = np.frombuffer(b"de", np.uint8)
        values, start, stop = tail.join(block, headroom)
        assert values[start:stop].tobytes() == b"abcde"
        assert np.shares_memory(values, block) == (headroom >= 3)
        assert tail.nbytes == 0


def test_records_given_out_are_not_touched_by_later_joins() -> None:
    stream = b"".join(frame(bytes([i]) * 40) for i in range(50))
    for size in (1, 30, 57, 100):
        expected = ([bytes([i]) * 40 for i in range(50)], None)
        assert read_blocks(TFRecordFormat(), stream, [size] * 3000, 20) == expected


def test_read_only_blocks_without_headroom_are_fine() -> None:
    framer = TFRecordFormat().framer("memory://x")
    stream = np.frombuffer(frame(b"abc"), np.uint8)
    assert not stream.flags.writeable
    assert not list(framer.feed(stream[:4], 0))
    (column,) = framer.feed(stream[4:], 0)
    assert column.elements() == [b"abc"]
