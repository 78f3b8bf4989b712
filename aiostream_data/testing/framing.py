"""Tests for the framer of a record format, without files: blocks, compression, damage, and starts at any record."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final
from unittest import SkipTest

import numpy as np

from aiostream_data.codecs.compression import COMPRESSIONS
from aiostream_data.codecs.snappy_chunks import chunk_ends
from aiostream_data.errors import CorruptRecordError, DataError
from aiostream_data.formats.base import Format, Recovers
from aiostream_data.formats.stream import RecordStream
from aiostream_data.testing.cut_streams import (
    URL,
    Damage,
    ReadOutcome,
    compressed,
    cuttings,
    read_around_damage,
    read_blocks,
    read_stream,
    record_offsets,
)

FAR: Final = (3 << 30) + 1
"""Offset beyond 32 bits, signed or not, for streams that begin far into a file."""

_OF_SEVERAL: Final = tuple(name for name in COMPRESSIONS[1:] if name != "zlib")
"""Compressions whose files may consist of several compressed streams."""

_CHANGES: Final = (0x01, 0x80, 0xFF)
"""Bits of a byte that a test inverts."""


class FramingSuite:
    """Base class of framer tests: name a subclass ``Test...`` and set its attributes.

    Attributes:
        description: The format.
        stream: A valid stream of a few hundred bytes; the tests cut the stream at every byte.
        records: Records of ``stream``.
        damaged: Damaged streams.
    """

    description: ClassVar[Format]
    stream: ClassVar[bytes]
    records: ClassVar[Sequence[Any]]
    damaged: ClassVar[Sequence[Damage]] = ()

    # -- blocks and compression

    def test_records_are_the_same_however_the_stream_is_cut(self) -> None:
        for sizes, headroom in cuttings(len(self.stream)):
            assert read_blocks(self.description, self.stream, sizes, headroom) == ReadOutcome(list(self.records), None)

    def test_compression_changes_nothing(self) -> None:
        for compression in COMPRESSIONS[1:]:
            stream = compressed(self.stream, compression)
            for asked in (compression, compression.upper(), "auto"):
                for sizes in ([], [1] * len(stream), [10]):
                    outcome = read_blocks(self.description, stream, sizes, 8, asked)
                    assert outcome == ReadOutcome(list(self.records), None), (asked, sizes)

    def test_concatenated_compressed_streams_are_one_stream(self) -> None:
        for compression in _OF_SEVERAL:
            for cut in {0, 1, len(self.stream) // 2, len(self.stream)}:
                first = compressed(self.stream[:cut], compression)
                stream = first + compressed(self.stream[cut:], compression)
                for sizes in ([], [len(first)], [10] * (len(stream) // 10)):
                    outcome = read_blocks(self.description, stream, sizes, 8, compression)
                    assert outcome == ReadOutcome(list(self.records), None), (compression, cut, sizes)

    def test_plain_stream_is_recognised_as_plain(self) -> None:
        for sizes in ([], [1] * len(self.stream)):
            assert read_blocks(self.description, self.stream, sizes, 0, "auto").records == list(self.records)

    # -- damage

    def test_damage_is_reported_once_all_records_before_it_were_given(self) -> None:
        for damage in self.damaged:
            for sizes, headroom in cuttings(len(damage.stream)):
                records, error = read_blocks(self.description, damage.stream, sizes, headroom)
                assert records == damage.records, (damage, sizes)
                assert error is not None, (damage, sizes)
                assert (error.url, error.offset) == (URL, damage.offset), (damage, sizes)

    def test_damage_is_not_forgotten(self) -> None:
        for damage in self.damaged:
            framer = self.description.framer(URL)
            raised = 0
            for _ in range(3):
                try:
                    list(framer.feed(np.frombuffer(damage.stream, np.uint8), 0))
                    list(framer.finish())
                except CorruptRecordError:
                    raised += 1
            assert raised >= 2, damage

    def test_a_stream_truncated_at_any_byte_yields_the_records_before(self) -> None:
        for stop in range(len(self.stream)):
            try:
                outcome = read_blocks(self.description, self.stream[:stop], [stop // 2])
            except DataError:
                continue  # an error about the content, such as a missing column
            self._check_truncated(outcome, stop)

    def test_a_compressed_stream_truncated_at_any_byte_is_an_error(self) -> None:
        for compression in COMPRESSIONS[1:]:
            stream = compressed(self.stream, compression)
            valid = chunk_ends(stream) if compression == "snappy" else set[int]()  # it has no end mark
            for stop in sorted({*range(1, len(stream))} - valid):
                outcome = read_blocks(self.description, stream[:stop], [stop // 2], 8, compression)
                assert outcome.error is not None, (compression, stop)
                self._check_truncated(outcome, stop)

    def test_any_changed_byte_leads_to_records_or_to_an_error_of_the_data(self) -> None:
        for at in range(len(self.stream)):
            for change in _CHANGES:
                stream = bytearray(self.stream)
                stream[at] ^= change
                whole, cut = (_outcome(self.description, bytes(stream), sizes) for sizes in ([], [at, 1]))
                assert whole == cut, (at, change)

    def test_skipped_damage_does_not_depend_on_blocks(self) -> None:
        for damage in self.damaged:
            found, losses = read_around_damage(self.description, damage.stream)
            assert losses, damage
            assert losses[0].offset == damage.offset, damage
            assert found[: len(damage.records)] == damage.records, damage
            if damage.after is not None:
                assert found[len(damage.records) :] == damage.after, damage
            if not isinstance(self.description, Recovers):
                assert found == damage.records, damage
                assert losses[0].nbytes is None, damage
            for sizes, headroom in _few_cuttings(len(damage.stream)):
                assert read_around_damage(self.description, damage.stream, sizes, headroom) == (found, losses), sizes

    # -- starts at any record

    def test_a_reader_starts_at_any_record(self) -> None:
        for number, offset in self._offsets():
            self._read_from(offset, offset, number)

    def test_offsets_beyond_two_gibibytes_are_exact(self) -> None:
        for number, offset in self._offsets():
            reader = self._read_from(offset, FAR + offset, number)
            assert reader.first_offset == FAR + offset
        _, first = self._offsets()[0]
        for damage in self.damaged:
            near, far = (
                read_stream(RecordStream(self.description, URL, "", base + first), damage.stream[first:])
                for base in (0, FAR)
            )
            assert near.records == far.records, damage
            assert (near.error is None) == (far.error is None), damage
            if near.error is not None and far.error is not None:
                assert far.error.offset == FAR + near.error.offset, damage

    # -- the format object

    def test_description_is_hashable_and_survives_pickling(self) -> None:
        copy = pickle.loads(pickle.dumps(self.description))
        assert copy == self.description
        assert hash(copy) == hash(self.description)
        assert copy.name

    # -- parts of the tests

    def _offsets(self) -> list[tuple[int, int]]:
        """Return number and offset of each record at which a reader can start, except at the start of the stream."""
        offsets = enumerate(record_offsets(self.description, self.stream))
        found = [(number, offset) for number, offset in offsets if offset]
        if not found:
            raise SkipTest("no reader of this format can start at a record")
        return found

    def _read_from(self, start: int, offset: int, number: int) -> RecordStream:
        """Read ``stream[start:]`` as the bytes from ``offset`` of a file, and compare with the records."""
        for size in (0, 1, 7):
            reader = RecordStream(self.description, URL, "", offset)
            outcome = read_stream(reader, self.stream[start:], [size] * (len(self.stream) // max(size, 1)))
            assert outcome == ReadOutcome(list(self.records[number:]), None), (number, offset, size)
        return reader

    def _check_truncated(self, outcome: ReadOutcome, stop: int) -> None:
        """Check a truncated stream. Without an error, its last record may be shorter, as a last line of text."""
        whole = outcome.records if outcome.error is not None else outcome.records[:-1]
        assert whole == list(self.records[: len(whole)]), stop
        assert len(outcome.records) <= len(self.records), stop
        if outcome.error is not None:
            assert outcome.error.url == URL, stop


def _few_cuttings(nbytes: int) -> Iterator[tuple[list[int], int]]:
    yield [1] * nbytes, 0
    yield [7] * (nbytes // 7), 4096
    for cut in range(0, nbytes + 1, max(1, nbytes // 64)):
        yield [cut], 5


def _outcome(description: Format, stream: bytes, sizes: list[int]) -> tuple[list[Any], int | str | None]:
    """Return the records, and the offset of the damage or the class of another error about the content."""
    try:
        records, error = read_blocks(description, stream, sizes)
    except DataError as other:
        return [], type(other).__name__
    return records, None if error is None else error.offset
