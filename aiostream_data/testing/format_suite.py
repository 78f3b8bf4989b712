"""Tests for record formats: blocks of any size yield the same records, and damage does not affect earlier records.

class TestMyFormat(FormatSuite):
    description = MyFormat()
    stream = b"..."
    records = [b"...", ...]
    damaged = [Damage(stream=b"...", records=[...], offset=12)]
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.compression import COMPRESSIONS, Compression
from aiostream_data.codecs.compressors import compressor
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import Format
from aiostream_data.formats.stream import RecordStream
from aiostream_data.rows.columns import VarColumn

_HEADROOMS: Final = (0, 5, 4096)
_SHORT_NBYTES: Final = 1024


class Damage(NamedTuple):
    """Damaged stream, the records before the damage, and the offset that the error must report."""

    stream: bytes
    records: list[Any]
    offset: int


class ReadOutcome(NamedTuple):
    """Result of reading a stream: the records in order, and the final error or None without an error."""

    records: list[Any]
    error: CorruptRecordError | None


def blocks_of(stream: bytes, sizes: Iterable[int], headroom: int = 0) -> Iterator[NDArray[np.uint8]]:
    """Cut a stream into blocks of ``sizes``, and a last block with the remaining bytes.

    ``headroom`` filler bytes precede each block.
    """
    at = 0
    for size in (*sizes, len(stream)):
        block = np.full(headroom + len(stream[at : at + size]), 0xAA, np.uint8)
        block[headroom:] = np.frombuffer(stream[at : at + size], np.uint8)
        at += size
        yield block


def read_blocks(
    description: Format, stream: bytes, sizes: Iterable[int] = (), headroom: int = 0, compression: str = ""
) -> ReadOutcome:
    """Read a whole stream through :class:`RecordStream`, cut into blocks by :func:`blocks_of`.

    Columns are converted to elements only at the end, to detect a framer that overwrites columns after returning them.
    """
    reader = RecordStream(description, "memory://stream", compression)
    columns: list[VarColumn] = []
    error: CorruptRecordError | None = None
    try:
        for block in blocks_of(stream, sizes, headroom):
            columns.extend(reader.feed(block, headroom))
        columns.extend(reader.finish())
    except CorruptRecordError as caught:
        error = caught
    return ReadOutcome([record for column in columns for record in column.elements()], error)


def compressed(stream: bytes, compression: Compression) -> bytes:
    """Compress the complete input into one compressed stream."""
    made = compressor(compression)
    return made.compress(stream) + made.flush()


def cuttings(nbytes: int) -> Iterator[tuple[list[int], int]]:
    """Yield the ways to cut a stream for a test: (block sizes, headroom).

    A short stream is cut at every byte with every headroom. A longer one is cut at every byte with one of them.
    """
    for number, headroom in enumerate(_HEADROOMS):
        yield [1] * nbytes, headroom
        yield [0, 7, 0, 0, 13, 1] * (nbytes // 21 + 1), headroom
        cuts = range(nbytes + 1) if nbytes <= _SHORT_NBYTES else range(number, nbytes + 1, len(_HEADROOMS))
        for cut in cuts:
            yield [cut], headroom


class FormatSuite:
    """Base class of format tests: name a subclass ``Test...`` and set its attributes.

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

    def test_plain_stream_is_recognised_as_plain(self) -> None:
        for sizes in ([], [1] * len(self.stream)):
            assert read_blocks(self.description, self.stream, sizes, 0, "auto").records == list(self.records)

    def test_damage_is_reported_once_all_records_before_it_were_given(self) -> None:
        for damage in self.damaged:
            for sizes, headroom in cuttings(len(damage.stream)):
                records, error = read_blocks(self.description, damage.stream, sizes, headroom)
                assert records == damage.records, (damage, sizes)
                assert error is not None, (damage, sizes)
                assert (error.url, error.offset) == ("memory://stream", damage.offset), (damage, sizes)

    def test_damage_is_not_forgotten(self) -> None:
        for damage in self.damaged:
            framer = self.description.framer("memory://stream")
            raised = 0
            for _ in range(3):
                try:
                    list(framer.feed(np.frombuffer(damage.stream, np.uint8), 0))
                    list(framer.finish())
                except CorruptRecordError:
                    raised += 1
            assert raised >= 2, damage

    def test_description_is_hashable_and_survives_pickling(self) -> None:
        copy = pickle.loads(pickle.dumps(self.description))
        assert copy == self.description
        assert hash(copy) == hash(self.description)
        assert copy.name
