"""TFRecord: each record framed by its length and two masked CRC-32C checksums."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from aiostream_data import _native
from aiostream_data.errors import PlanError
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.records import VarColumn

HEADER = struct.Struct("<QI")
"""Payload length and its checksum."""
FOOTER = struct.Struct("<I")
"""The payload's checksum."""

FRAMING_NBYTES = HEADER.size + FOOTER.size
MAX_RECORD_NBYTES_LIMIT = 1 << 62


@dataclass(frozen=True, kw_only=True)
class TFRecordFormat:
    """What ``tf.data.TFRecordDataset`` reads: one ``bytes`` record per frame.

    A length is always checked against its checksum before it is believed.

    Attributes:
        verify: Also compare the checksum of every payload, as tf.data does.
        max_record_nbytes: A longer record is taken for damage; bounds what one record can claim in memory.
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

    def framer(self, url: str) -> TFRecordFramer:
        return TFRecordFramer(self, url)

    def recognises(self, first_bytes: bytes) -> bool:
        """Return whether an uncompressed stream starts with these bytes: the first length has a valid checksum."""
        if len(first_bytes) < HEADER.size:
            return False
        return _native.masked_crc32c(first_bytes[:8]) == int.from_bytes(first_bytes[8:12], "little")


class TFRecordFramer(CuttingFramer):
    """Cuts one TFRecord stream. Releases the GIL where the native core is built."""

    _prefix_nbytes = HEADER.size

    def __init__(self, description: TFRecordFormat, url: str) -> None:
        super().__init__(url)
        self._format = description
        self._wanted = HEADER.size  # bytes from the tail's start that the next attempt needs

    @property
    def record_nbytes(self) -> int:
        return self._wanted

    def _completes(self, fresh: Bytes) -> bool:
        return self._tail.nbytes + len(fresh) >= self._wanted

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        starts, lengths, consumed, problem = _native.frame_tfrecords(
            values, start, stop, self._format.verify, self._format.max_record_nbytes
        )
        self._wanted = HEADER.size
        if problem is None and stop - consumed >= HEADER.size:
            # The header was checked, and the record behind it is not complete.
            length, _ = HEADER.unpack_from(values[consumed : consumed + HEADER.size].tobytes())
            self._wanted = length + FRAMING_NBYTES
        return Cut(VarColumn(values, starts, lengths), consumed, problem)

    def _end(self, tail: Bytes) -> Cut:
        if not len(tail):
            return Cut(no_records(), 0)
        what = "a header" if self._wanted == HEADER.size else f"a record of {self._wanted} bytes"
        return Cut(no_records(), 0, f"the stream ends {len(tail)} bytes into {what}")
