"""Blocks and chunks of Riegeli files, the container of ArrayRecord files.

A header of 24 bytes stands at each multiple of 64 KiB, also within chunks. A chunk has a header of 40 bytes with hashes
of the header and of the data. The data of a simple chunk are the sizes of its records, and then the records. Both parts
can be compressed.

Many chunks are read at once, because a chunk often contains one record.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.errors import CorruptRecordError, PlanError
from aiostream_data.formats.riegeli_compression import (
    NOT_COMPRESSED,
    Decompress,
    UnreadablePart,
    decompressed,
    each_decompressed,
)
from aiostream_data.formats.varints import DAMAGED, Numbers, varints_at, varints_of
from aiostream_data.rows.columns import SeparateBytes, VarColumn, are_large
from aiostream_data.safe_url import safe_url

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

BLOCK_NBYTES: Final = 64 << 10
BLOCK_HEADER_NBYTES: Final = 24
CHUNK_HEADER_NBYTES: Final = 40
SIGNATURE: Final = bytes.fromhex("83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a9")
"""First bytes of every Riegeli file: the header of the first block, and the start of the first chunk."""

FIRST_CHUNK: Final = BLOCK_HEADER_NBYTES + CHUNK_HEADER_NBYTES
"""Minimum offset of the first chunk with data. The chunk before has only a header."""

MAX_SIZE_NBYTES: Final = 10
"""Maximum number of bytes of the size of a record."""

_KEY: Final = (0x2F696C6567656952, 0x0A7364726F636572, 0x2F696C6567656952, 0x0A7364726F636572)
"""Key of the hashes: the text ``Riegeli/records`` and a line feed, twice."""

_HASH_NBYTES: Final = 8
_MAX_NBYTES: Final = (1 << 63) - 1
_SIMPLE: Final = ord("r")
_TRANSPOSED: Final = ord("t")
_OTHER_SIZE: Final = "the records of a chunk have another size than its header says"


def may_begin_chunk(offsets: Any) -> Any:
    """Return True unless an offset is inside the header of a block, or directly behind it. Accepts an array."""
    inside = offsets % BLOCK_NBYTES
    return (inside == 0) | (inside > BLOCK_HEADER_NBYTES)


def without_block_headers(data: memoryview, start: int) -> Bytes:
    """Return the bytes of a range of a file without the headers of blocks.

    Args:
        data: Bytes of the range.
        start: Offset of the range in the file, where a chunk may begin.
    """
    values = np.frombuffer(data, np.uint8)
    first = -start % BLOCK_NBYTES
    if first >= len(values):
        return values
    body = values[first:]
    kept = BLOCK_NBYTES - BLOCK_HEADER_NBYTES
    blocks, rest = divmod(len(body), BLOCK_NBYTES)
    tail = body[blocks * BLOCK_NBYTES + BLOCK_HEADER_NBYTES :]
    found = np.empty(first + blocks * kept + max(0, rest - BLOCK_HEADER_NBYTES), np.uint8)
    found[:first] = values[:first]
    whole = body[: blocks * BLOCK_NBYTES].reshape(blocks, BLOCK_NBYTES)
    found[first : first + blocks * kept].reshape(blocks, kept)[:] = whole[:, BLOCK_HEADER_NBYTES:]
    found[first + blocks * kept :] = tail
    return found


def places_without_block_headers(offsets: Numbers, start: int) -> Numbers:
    """Return the places of offsets of a file in the result of :func:`without_block_headers`."""
    blocks = -(-offsets // BLOCK_NBYTES) + (-start // BLOCK_NBYTES)
    return offsets - start - BLOCK_HEADER_NBYTES * blocks


def stored_nbytes(offset: int, nbytes: int) -> int:
    """Return the number of bytes of a chunk in the file, with the headers of blocks inside of it.

    Args:
        offset: Offset of the chunk in the file.
        nbytes: Number of bytes of the chunk without these headers.
    """
    room = BLOCK_NBYTES - BLOCK_HEADER_NBYTES
    return nbytes + (nbytes + (offset + room - 1) % BLOCK_NBYTES) // room * BLOCK_HEADER_NBYTES


class ChunkHeaders(NamedTuple):
    """Headers of chunks, after their hashes and those of the data were compared.

    Attributes:
        starts, stops: Places of the data of each chunk.
        kinds: Byte that stands for the kind of each chunk.
        records: Number of records.
        nbytes: Size of all records of each chunk, in bytes.
    """

    starts: Numbers
    stops: Numbers
    kinds: Numbers
    records: Numbers
    nbytes: Numbers


class RiegeliChunks:
    """Consecutive chunks of a file that are in memory.

    Args:
        url: URL of the file, for error messages.
        offsets: Offset of each chunk in the file, ascending.
        stop: Offset after the last chunk.
        data: Bytes from the first chunk to ``stop``, or fewer if the last chunk ends before.
    """

    def __init__(self, url: str, offsets: Numbers, stop: int, data: memoryview) -> None:
        self._url = url
        self._offsets = offsets
        start = int(offsets[0])
        self._values = without_block_headers(data, start)
        places = places_without_block_headers(np.append(offsets, stop), start)
        self._starts = places[:-1]
        self._stops = np.minimum(places[1:], len(self._values))

    def headers(self) -> ChunkHeaders:
        """Read the headers, and compare all hashes.

        Raises:
            CorruptRecordError: A chunk is damaged or cut short. The error names the first one.
        """
        size, data_hash, kind, nbytes = self._words()
        starts = self._starts + CHUNK_HEADER_NBYTES
        self._check(size <= (self._stops - starts).astype(np.uint64), "the data of a chunk are cut short")
        lengths = size.astype(np.int64)
        hashes = _native.highway_spans(self._values, starts, lengths, _KEY)
        self._check(hashes == data_hash, "the data of a chunk do not match their hash")
        self._check(nbytes <= np.uint64(_MAX_NBYTES), "a chunk declares too many bytes")
        records = (kind >> np.uint64(8)).astype(np.int64)
        kinds = (kind & np.uint64(0xFF)).astype(np.int64)
        return ChunkHeaders(starts, starts + lengths, kinds, records, nbytes.astype(np.int64))

    def data_nbytes(self) -> int:
        """Read the header of the first chunk, whose data need not be in memory. Return the size of its data.

        Raises:
            CorruptRecordError: The header is damaged or cut short.
        """
        return int(self._words()[0][0])

    def _words(self) -> tuple[Words, Words, Words, Words]:
        """Return the numbers in the headers: size and hash of the data, kind with number of records, decoded size."""
        self._check(self._stops - self._starts >= CHUNK_HEADER_NBYTES, "a chunk is cut short")
        raw = self._values[self._starts[:, None] + np.arange(CHUNK_HEADER_NBYTES)]
        header_hash, size, data_hash, kind, nbytes = raw.view("<u8").astype(np.uint64, copy=False).T
        hashed = np.full(len(raw), CHUNK_HEADER_NBYTES - _HASH_NBYTES)
        hashes = _native.highway_spans(self._values, self._starts + _HASH_NBYTES, hashed, _KEY)
        self._check(hashes == header_hash, "the header of a chunk does not match its hash")
        return size, data_hash, kind, nbytes

    def records(self, headers: ChunkHeaders) -> VarColumn:
        """Return the records of all chunks, in order.

        Allocates as many bytes as the headers declare. Compare them with a limit before the call.

        Raises:
            CorruptRecordError: A chunk is damaged.
            PlanError: A chunk is transposed.
            MissingExtraError: The library for the compression is not installed.
        """
        self._check_kinds(headers.kinds)
        self._check(headers.stops > headers.starts, "a chunk has no data")
        sizes_nbytes, sizes_starts = varints_at(self._values, headers.starts + 1, headers.stops)
        values_starts = sizes_starts + np.maximum(0, sizes_nbytes)
        is_inside = (sizes_nbytes != DAMAGED) & (sizes_nbytes <= headers.stops - sizes_starts)
        self._check(is_inside, "the sizes of the records of a chunk are cut short")
        compression = self._compression(headers.starts)
        sizes = self._part(compression, sizes_starts, values_starts, MAX_SIZE_NBYTES * headers.records)
        lengths, bounds = self._lengths(sizes, headers)
        if compression != NOT_COMPRESSED and are_large(lengths) and bool((headers.records == 1).all()):
            return self._single_records(compression, values_starts, headers)
        values = self._part(compression, values_starts, headers.stops, headers.nbytes)
        self._check(values.lengths == headers.nbytes, _OTHER_SIZE)
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        inside = ends[:-1] - np.repeat(ends[bounds[:-1]], np.diff(bounds))
        return VarColumn(values.values, np.repeat(values.starts, np.diff(bounds)) + inside, lengths)

    def _check_kinds(self, kinds: Numbers) -> None:
        if bool((kinds == _TRANSPOSED).any()):
            raise PlanError(
                f"{safe_url(self._url)} has transposed chunks, which this package cannot read. "
                "Write the file again with the option transpose:false of ArrayRecordWriter, which is the default."
            )
        self._check(kinds == _SIMPLE, "this is not a chunk of records")

    def _compression(self, starts: Numbers) -> int:
        """Return the compression of the chunks. A writer uses one for all chunks of a file."""
        found = self._values[starts]
        self._check(found == found[0], "a chunk has another compression than the chunk before")
        return int(found[0])

    def _single_records(self, compression: int, starts: Numbers, headers: ChunkHeaders) -> SeparateBytes:
        """Return the records of chunks with one record each. The decompressed objects are the records."""
        rows, nbytes = self._decompressed(each_decompressed, compression, starts, headers.stops, headers.nbytes)
        self._check(nbytes == headers.nbytes, _OTHER_SIZE)
        return SeparateBytes(rows)

    def _part(self, compression: int, starts: Numbers, stops: Numbers, most: Numbers) -> VarColumn:
        """Return one part of each chunk, decompressed. ``most`` has the maximum size of each."""
        if compression == NOT_COMPRESSED:
            return VarColumn(self._values, starts, stops - starts)
        found, nbytes = self._decompressed(decompressed, compression, starts, stops, most)
        return VarColumn(np.frombuffer(found, np.uint8), np.cumsum(nbytes) - nbytes, nbytes)

    def _decompressed(
        self, decompress: Decompress, compression: int, starts: Numbers, stops: Numbers, most: Numbers
    ) -> tuple[Any, Numbers]:
        """Decompress one part of each chunk. Return the result, and the size of each decompressed part."""
        nbytes, starts = varints_at(self._values, starts, stops)
        is_valid = (nbytes != DAMAGED) & (nbytes <= most)
        self._check(is_valid, "a part of a chunk declares a size that does not fit its header")
        data = self._values.data
        parts = [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        try:
            return decompress(compression, parts, nbytes.tolist()), nbytes
        except UnreadablePart as error:
            raise self._error(error.part, error.reason) from error.__cause__

    def _lengths(self, sizes: VarColumn, headers: ChunkHeaders) -> tuple[Numbers, Numbers]:
        """Return the size of each record, and the number of the first record of each chunk and of the end."""
        joined = sizes.compact().values
        lengths, ends = varints_of(joined)
        stops = np.cumsum(sizes.lengths)
        bounds = np.concatenate((np.zeros(1, np.int64), np.searchsorted(ends, stops, "right")))
        is_whole = np.concatenate((np.zeros(1, np.int64), ends))[bounds[1:]] == stops
        counts = np.diff(bounds)
        self._check(
            is_whole & (counts == headers.records), "a chunk has another number of records than its header says"
        )
        chunks = np.repeat(np.arange(len(counts)), counts)
        running = np.cumsum(lengths)
        fits = (lengths != DAMAGED) & (lengths <= headers.nbytes[chunks]) & (running >= 0)  # sums may wrap
        self._check(np.bincount(chunks[~fits], minlength=len(counts)) == 0, "a record is longer than its chunk")
        totals = np.concatenate((np.zeros(1, np.int64), running))[bounds]
        self._check(np.diff(totals) == headers.nbytes, _OTHER_SIZE)
        return lengths, bounds

    def _check(self, is_valid: NDArray[np.bool_], reason: str) -> None:
        if not bool(is_valid.all()):
            raise self._error(int(np.argmin(is_valid)), reason)

    def _error(self, chunk: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self._url, int(self._offsets[chunk]), reason)
