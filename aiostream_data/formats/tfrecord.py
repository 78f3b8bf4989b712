"""TFRecord format: each record is framed by its length and two masked CRC-32C checksums."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.codecs.file_kinds import starts_tfrecord
from aiostream_data.errors import PlanError
from aiostream_data.formats.base import SmallObjects
from aiostream_data.formats.cutting import MOST_ROWS, Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.long_record import LongRecord
from aiostream_data.formats.tfrecord_recovery import TFRecordRecovery
from aiostream_data.rows.columns import VarColumn

HEADER = struct.Struct("<QI")
"""Header of a record: the payload length and the checksum of this length."""
FOOTER = struct.Struct("<I")
"""Checksum of the payload."""

FRAMING_NBYTES = HEADER.size + FOOTER.size
MAX_RECORD_NBYTES_LIMIT = 1 << 62

_WINDOW_NBYTES_PER_ROW = 4 * FRAMING_NBYTES
"""Size of a parsing window in bytes per requested row. If all records are empty, a window contains four times as many
records as requested."""

_WIDE_NBYTES_PER_ROW = 16 * FRAMING_NBYTES
"""Size of a parsing window in bytes per row, if the caller uses the default row limit, or if the first record is long.
With this size, a typical block fits into one window."""

_LONG_NBYTES = 4 << 10
"""Minimum size of a long record. Most records are about as long as the first one."""


@dataclass(frozen=True, kw_only=True)
class TFRecordFormat:
    """Format of ``tf.data.TFRecordDataset``: one ``bytes`` record per frame.

    The checksum of each record's length field is always verified.

    Attributes:
        verify: If True, verify the checksum of every payload, as tf.data does.
        max_record_nbytes: Maximum size of a record in bytes. A longer record is treated as damaged data. The maximum
            limits the memory that one record can use.
    """

    verify: bool = True
    max_record_nbytes: int = 1 << 30

    def __post_init__(self) -> None:
        if not 0 <= self.max_record_nbytes <= MAX_RECORD_NBYTES_LIMIT:
            raise PlanError(f"max_record_nbytes must be from 0 to 2**62, got {self.max_record_nbytes}")

    @property
    def name(self) -> str:
        return "tfrecord"

    @property
    def whole(self) -> bool:
        return False

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""
        return self.max_record_nbytes

    def framer(self, url: str) -> TFRecordFramer:
        return TFRecordFramer(self, url)

    @property
    def split_proves_format(self) -> bool:
        """True: the checksum of each length proves the format."""
        return True

    def split_objects(self, values: Bytes, bounds: NDArray[np.int64], most_rows: int) -> SmallObjects | None:
        """Split all objects in one pass; None if one is damaged or does not end with a record."""
        starts, lengths, consumed, problem = _native.frame_tfrecords(
            values, int(bounds[0]), int(bounds[-1]), self.verify, self.max_record_nbytes
        )
        ends = starts + lengths + FOOTER.size
        rows_before = np.searchsorted(ends, bounds, side="right")
        last = np.concatenate([bounds[:1], ends])[rows_before]  # end of the last record at or before each bound
        if problem is not None or consumed != bounds[-1] or (last != bounds).any() or len(starts) > most_rows:
            return None
        return SmallObjects(VarColumn(values, starts, lengths), np.diff(rows_before))

    def most_rows(self, values: Bytes, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.diff(bounds) // FRAMING_NBYTES

    def recovery(self) -> TFRecordRecovery:
        return TFRecordRecovery(self.verify, self.max_record_nbytes)

    def recognises(self, first_bytes: bytes) -> bool:
        """Return True if the bytes begin with a TFRecord length field whose checksum matches."""
        return starts_tfrecord(first_bytes)


class TFRecordFramer(CuttingFramer):
    """Framer that splits one stream into TFRecords. The native (compiled) parser releases the GIL."""

    prefix_nbytes = HEADER.size

    def __init__(self, description: TFRecordFormat, url: str) -> None:
        super().__init__(url)
        self._format = description
        self._wanted = HEADER.size  # bytes from the start of the tail needed for the next attempt
        self._long_length = 0

    @property
    def record_nbytes(self) -> int:
        return self._wanted

    def check_end(self, nbytes: int) -> None:
        """Check that an incomplete record does not extend beyond the end of the stream of ``nbytes`` bytes.

        An early error avoids buffering the remaining bytes of the stream.

        Raises:
            CorruptRecordError: The record declares a length beyond the end of the stream.
        """
        if self.held_nbytes and self._offset + self._wanted > nbytes:
            raise self._failed(self._cut_short(nbytes - self._offset))

    def _completes(self, fresh: Bytes) -> bool:
        return self._tail.nbytes + len(fresh) >= self._wanted

    def _window(self, values: Bytes, start: int, stop: int, most_rows: int) -> int:
        narrow, wide = most_rows * _WINDOW_NBYTES_PER_ROW, most_rows * _WIDE_NBYTES_PER_ROW
        if stop - start <= narrow:
            return stop
        first = int.from_bytes(values[start : start + 8], "little") + FRAMING_NBYTES  # checksum verified later, in _cut
        are_long = most_rows == MOST_ROWS or first >= _LONG_NBYTES
        return min(stop, start + max(first, wide if are_long else narrow))

    def _begin_long(self, rest: Bytes) -> LongRecord | None:
        self._long_length = self._wanted - FRAMING_NBYTES
        long = LongRecord(self._long_length, FOOTER.size)
        long.take(rest[HEADER.size :])
        return long

    def _problem_of(self, data: bytes, suffix: bytes) -> str | None:
        self._wanted = HEADER.size
        if self._format.verify and _native.masked_crc32c(data) != FOOTER.unpack(suffix)[0]:
            return "payload checksum mismatch"
        return None

    def _long_parts(self, data: bytes, suffix: bytes) -> list[bytes]:
        length = struct.pack("<Q", self._long_length)
        return [length, FOOTER.pack(_native.masked_crc32c(length)), data, suffix]

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        starts, lengths, consumed, problem = _native.frame_tfrecords(
            values, start, stop, self._format.verify, self._format.max_record_nbytes
        )
        self._wanted = HEADER.size
        if problem is None and stop - consumed >= HEADER.size:
            # The header is valid, but the rest of the record has not arrived.
            length, _ = HEADER.unpack_from(values[consumed : consumed + HEADER.size].tobytes())
            self._wanted = length + FRAMING_NBYTES
        return Cut(VarColumn(values, starts, lengths), consumed, problem)

    def _end(self, tail: Bytes) -> Cut:
        if not len(tail):
            return Cut(no_records(), 0)
        return Cut(no_records(), 0, self._cut_short(len(tail)))

    def _cut_short(self, nbytes: int) -> str:
        what = "a header" if self._wanted == HEADER.size else f"a record of {self._wanted} bytes"
        return f"the stream ends {nbytes} bytes into {what}"
