"""Log-structured storage of rows in a file.

Rows are appended in large segments and removed in any order; space is reused.

How this works. New rows are collected in one *segment* in memory. A full segment is written to the file in one piece,
followed by the slot numbers of its rows. Rows are removed at random, so old segments become empty first. When less than
half of the written bytes belong to live rows, the emptiest of the oldest segments is packed. Packing moves the live
rows of a segment to the end of the log and frees the segment's space in the file. If rows are removed uniformly at
random, packing writes 25 % more data, and the file stays below twice the size of the live rows.

The *address* of a row has the segment number in its upper 32 bits and the offset in the segment in its lower 32 bits.
The caller stores the address, length and checksum of each row. The log stores only a few numbers per segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.transforms.spill_file import SpillFile

PLACE_BITS: Final = 32
_PLACE: Final = (1 << PLACE_BITS) - 1

SLOT_NBYTES: Final = 8
"""Size in bytes of a slot number; a segment stores one slot number per row."""

CANDIDATES: Final = 64
"""Number of oldest segments among which the emptiest segment is chosen for packing."""

MOST_KEPT: Final = 0.75
"""Maximum fraction of live bytes in a segment for which the segment is packed."""

Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(slots=True)
class Segment:
    """Part of the file that contains rows, followed by the slot numbers of these rows.

    Attributes:
        start: Offset of the segment in the file.
        nbytes: Size in bytes.
        rows: Number of rows written to the segment.
        live: Number of rows in the segment that were not removed yet.
        live_nbytes: Size of the live rows in bytes, with their slot numbers.
    """

    start: int
    nbytes: int
    rows: int
    live: int
    live_nbytes: int


class SpillLog:
    """Log of rows in a spill file (a temporary file for rows). Not thread-safe.

    Args:
        file: File that stores the segments; :meth:`close` closes it.
        segment_nbytes: Size of a segment in bytes.
    """

    def __init__(self, file: SpillFile, segment_nbytes: int) -> None:
        self.file = file
        self._segments: dict[int, Segment] = {}  # segments in the file, oldest first
        self._written = 0  # total bytes of these segments
        self._live = 0  # live bytes in these segments
        self._number = 0  # number of the segment in memory
        self._arena = np.empty(segment_nbytes, np.uint8)
        self._begin()

    def _begin(self) -> None:
        self._used = 0
        self._slots: list[Numbers] = []
        self._open = Segment(0, 0, 0, 0, 0)

    @property
    def nbytes(self) -> int:
        """Allocated memory in bytes."""
        return self._arena.nbytes + SLOT_NBYTES * self._open.rows

    def add(self, values: Bytes, lengths: Numbers, slots: Numbers) -> Numbers:
        """Append rows to the log.

        ``values`` contains the concatenated bytes of the rows. Return their addresses (int64).

        Raises:
            SpillError: The rows could not be written.
        """
        stops = np.cumsum(lengths)
        starts = stops - lengths
        needed = stops + SLOT_NBYTES * np.arange(1, len(lengths) + 1)
        addresses = np.empty(len(lengths), np.int64)
        row = 0
        while row < len(lengths):
            room = len(self._arena) - self._used - SLOT_NBYTES * self._open.rows
            before = int(needed[row - 1]) if row else 0
            stop = int(np.searchsorted(needed, before + room, "right"))
            if stop > row:
                addresses[row:stop] = self._take_in(values[starts[row] : stops[stop - 1]], lengths[row:stop])
                self._slots.append(slots[row:stop])
                row = stop
            elif self._open.rows:
                self._write(self._arena[: self._used])
            else:  # the row is larger than a segment
                addresses[row] = self._number << PLACE_BITS
                self._open = Segment(0, 0, 1, 1, int(lengths[row]) + SLOT_NBYTES)
                self._slots = [slots[row : row + 1]]
                self._write(values[starts[row] : stops[row]])
                row += 1
        return addresses

    def _take_in(self, values: Bytes, lengths: Numbers) -> Numbers:
        addresses = (self._number << PLACE_BITS) + self._used + np.cumsum(lengths) - lengths
        self._arena[self._used : self._used + len(values)] = values
        self._used += len(values)
        self._open.rows += len(lengths)
        self._open.live += len(lengths)
        self._open.live_nbytes += len(values) + SLOT_NBYTES * len(lengths)
        return addresses

    def _write(self, values: Bytes) -> None:
        """Write the segment in memory to the file, unless all of its rows were removed.

        This method also begins a new segment in memory.
        """
        segment = self._open
        if segment.live:
            slots = np.concatenate(self._slots).view(np.uint8)
            segment.nbytes = len(values) + len(slots)
            segment.start = self.file.allocate(segment.nbytes)
            self.file.write(segment.start, [values, slots])
            self._segments[self._number] = segment
            self._written += segment.nbytes
            self._live += segment.live_nbytes
        self._number += 1
        self._begin()

    def read(self, addresses: Numbers, lengths: Numbers, checksums: NDArray[np.uint32]) -> Bytes:
        """Return the concatenated bytes of the rows at these addresses.

        Raises:
            SpillError: The rows could not be read, or the checksum of a row differs.
        """
        is_open = self.is_in(self._number, addresses)
        written = np.where(is_open, 0, lengths)
        found = self.file.read(self._offsets(addresses[~is_open]), lengths[~is_open])
        if is_open.any():
            starts = np.where(is_open, addresses & _PLACE, np.cumsum(written) - written)
            found, _ = _native.compact_many([found, self._arena], is_open.astype(np.int32), starts, lengths)
        self._check(found, np.cumsum(lengths) - lengths, lengths, checksums)
        return found

    def _offsets(self, addresses: Numbers) -> Numbers:
        """Convert the addresses of rows in the file to file offsets."""
        numbers, which = np.unique(addresses >> PLACE_BITS, return_inverse=True)
        begin = np.array([self._segments[number].start for number in numbers.tolist()], np.int64)
        return begin[which] + (addresses & _PLACE) if len(numbers) else addresses

    def _check(self, values: Bytes, starts: Numbers, lengths: Numbers, checksums: NDArray[np.uint32]) -> None:
        if not np.array_equal(_native.crc32c_spans(values, starts, lengths), checksums):
            raise self.file.damaged("the checksums of rows read back differ from those of the rows written")

    def forget(self, addresses: Numbers, lengths: Numbers) -> None:
        """Record that the rows at these addresses were removed."""
        numbers, which = np.unique(addresses >> PLACE_BITS, return_inverse=True)
        counts = np.bincount(which, minlength=len(numbers)).tolist()
        sizes = np.bincount(which, weights=lengths + SLOT_NBYTES, minlength=len(numbers)).tolist()
        for number, rows, nbytes in zip(numbers.tolist(), counts, sizes, strict=True):
            segment = self._open if number == self._number else self._segments[number]
            segment.live -= rows
            segment.live_nbytes -= int(nbytes)
            if segment is not self._open:
                self._live -= int(nbytes)
                if not segment.live:
                    self._drop(number)

    def _drop(self, number: int) -> None:
        segment = self._segments.pop(number)
        self._written -= segment.nbytes
        self._live -= segment.live_nbytes
        self.file.free(segment.start, segment.nbytes)

    def emptiest(self) -> int | None:
        """Return the number of the segment to pack next, or None if packing would not save enough space."""
        if self._written <= 2 * self._live + 2 * len(self._arena):
            return None
        oldest = islice(self._segments.items(), CANDIDATES)
        kept, number = min((segment.live_nbytes / segment.nbytes, number) for number, segment in oldest)
        return number if kept <= MOST_KEPT else None

    @staticmethod
    def is_in(number: int, addresses: Numbers) -> NDArray[np.bool_]:
        """Return a boolean mask of the addresses that are in segment ``number``."""
        inside: NDArray[np.bool_] = addresses >> PLACE_BITS == number
        return inside

    def slots_of(self, number: int) -> Numbers:
        """Return the distinct slot numbers that were written with a segment, in ascending order.

        Since the write, these slots may have received other rows.
        """
        segment = self._segments[number]
        nbytes = SLOT_NBYTES * segment.rows
        offset = np.array([segment.start + segment.nbytes - nbytes])
        return np.unique(self.file.read(offset, np.array([nbytes])).view(np.int64))

    def packed(
        self, number: int, slots: Numbers, addresses: Numbers, lengths: Numbers, checksums: NDArray[np.uint32]
    ) -> Numbers:
        """Move the live rows of a segment to the end of the log, and free the segment's space in the file.

        Return the new addresses of the live rows.

        Raises:
            SpillError: The rows could not be read or written, or the checksum of a row differs.
        """
        segment = self._segments[number]
        if len(slots) != segment.live:
            raise self.file.damaged(f"read back {len(slots)} rows instead of the {segment.live} rows written")
        whole = self.file.read(np.array([segment.start]), np.array([segment.nbytes]))
        values, starts = _native.compact(whole, addresses & _PLACE, lengths)
        self._check(values, starts, lengths, checksums)
        self._drop(number)
        return self.add(values, lengths, slots)

    def close(self) -> None:
        """Close the file and discard all segments. Idempotent."""
        self.file.close()
        self._segments.clear()
        self._begin()
