"""Read streams that are cut into blocks, compressed or damaged, to test record formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.compression import Compression
from aiostream_data.codecs.compressors import compressor
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import Format, Loss
from aiostream_data.formats.skipping_stream import SkippingStream
from aiostream_data.formats.stream import RecordStream
from aiostream_data.rows.columns import VarColumn

URL: Final = "memory://stream"
"""URL of the streams, for error messages."""

_HEADROOMS: Final = (0, 5, 4096)
_SHORT_NBYTES: Final = 1024


class Damage(NamedTuple):
    """Damaged stream, and the result that a reader must report.

    Attributes:
        stream: The damaged stream.
        records: Records before the damage.
        offset: Offset that the error must report.
        after: Records after the damage that a reader which skips damage must find. If None, only the records before the
            damage are checked.
    """

    stream: bytes
    records: list[Any]
    offset: int
    after: list[Any] | None = None


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
    return read_stream(RecordStream(description, URL, compression), stream, sizes, headroom)


def read_stream(reader: RecordStream, stream: bytes, sizes: Iterable[int] = (), headroom: int = 0) -> ReadOutcome:
    """Read a whole stream through ``reader``, cut into blocks by :func:`blocks_of`. See :func:`read_blocks`."""
    columns: list[VarColumn] = []
    error: CorruptRecordError | None = None
    try:
        for block in blocks_of(stream, sizes, headroom):
            columns.extend(reader.feed(block, headroom))
        columns.extend(reader.finish())
    except CorruptRecordError as caught:
        error = caught
    return ReadOutcome([record for column in columns for record in column.elements()], error)


def read_around_damage(
    description: Format, stream: bytes, sizes: Iterable[int] = (), headroom: int = 0
) -> tuple[list[Any], list[Loss]]:
    """Read a whole stream, skip damage, and return the records and the losses (skipped ranges)."""
    losses: list[Loss] = []
    reader = SkippingStream(description, URL, "", report=losses.append, nbytes=len(stream))
    return read_stream(reader, stream, sizes, headroom).records, losses


def record_offsets(description: Format, stream: bytes) -> list[int | None]:
    """Return the offset of each record, or None for a record at which no reader can start."""
    reader = RecordStream(description, URL, "")
    found: list[int | None] = []
    block = np.frombuffer(stream, np.uint8).copy()
    for columns in (reader.feed(block, 0), reader.finish()):
        for column in columns:
            found.extend(reader.offset_of(start) for start in column.starts.tolist())
    return found


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
