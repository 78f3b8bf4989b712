"""Format of files with fixed-length records between an optional header and footer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import integer
from aiostream_data.codecs.file_kinds import FileKind
from aiostream_data.errors import PlanError
from aiostream_data.formats.base import SmallObjects
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.long_record import LongRecord
from aiostream_data.rows.columns import VarColumn

MAX_FOOTER_NBYTES = 1 << 20
"""Maximum footer size in bytes.

Footers must be small, because the last bytes of each block are copied in front of the next block.
"""


@dataclass(frozen=True, kw_only=True)
class FixedLengthFormat:
    """Format of ``tf.data.FixedLengthRecordDataset``: each record consists of ``record_nbytes`` bytes.

    The framer (parser) always buffers the last ``footer_nbytes`` bytes. Footers therefore also work in compressed
    streams.

    Attributes:
        record_nbytes: Size of a record in bytes.
        header_nbytes: Number of bytes to skip at the start of the stream.
        footer_nbytes: Number of bytes to skip at the end of the stream.
    """

    record_nbytes: int
    header_nbytes: int = 0
    footer_nbytes: int = 0

    def __post_init__(self) -> None:
        integer("record_nbytes", self.record_nbytes, 1)
        integer("header_nbytes", self.header_nbytes, 0)
        if not 0 <= integer("footer_nbytes", self.footer_nbytes) <= MAX_FOOTER_NBYTES:
            raise PlanError(f"footer_nbytes must be from 0 to {MAX_FOOTER_NBYTES}, got {self.footer_nbytes}")

    @property
    def name(self) -> str:
        return "fixed_length"

    @property
    def whole(self) -> bool:
        return False

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""
        return self.record_nbytes

    def refuses(self, kind: FileKind) -> bool:
        """Return True if the file certainly has another format.

        If a header may precede the records, the result is always False.
        """
        return kind.is_certain and not self.header_nbytes

    def is_one_record(self, nbytes: int | None) -> bool:
        """Return True for an object of the size of a record. See :class:`.HoldsOneRecord`."""
        return nbytes == self.record_nbytes and not self.header_nbytes and not self.footer_nbytes

    def framer(self, url: str) -> FixedLengthFramer:
        return FixedLengthFramer(self, url)

    @property
    def split_proves_format(self) -> bool:
        """False: any bytes can be records of this format."""
        return False

    def split_objects(self, values: Bytes, bounds: NDArray[np.int64], most_rows: int) -> SmallObjects | None:
        """Split objects at multiples of the record size; None if an object ends inside a record."""
        data_nbytes = np.diff(bounds) - self.header_nbytes - self.footer_nbytes
        rows, left_over = np.divmod(data_nbytes, self.record_nbytes)
        if (data_nbytes < 0).any() or left_over.any() or rows.sum() > most_rows:
            return None
        before = np.cumsum(rows) - rows  # records of the objects before each object
        first = bounds[:-1] + self.header_nbytes - before * self.record_nbytes
        starts = np.repeat(first, rows) + self.record_nbytes * np.arange(int(rows.sum()), dtype=np.int64)
        return SmallObjects(VarColumn(values, starts, np.full(len(starts), self.record_nbytes, np.int64)), rows)

    def most_rows(self, values: Bytes, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.diff(bounds) // self.record_nbytes


class FixedLengthFramer(CuttingFramer):
    """Framer (parser) for one stream of fixed-length records, which skips the header and footer."""

    def __init__(self, description: FixedLengthFormat, url: str) -> None:
        super().__init__(url)
        self._format = description
        self._header_left = description.header_nbytes

    def resume(self, offset: int) -> None:
        super().resume(offset)
        self._header_left = max(0, self._header_left - offset)

    def _completes(self, fresh: Bytes) -> bool:
        wanted = self._format.record_nbytes + self._format.footer_nbytes
        return self._header_left > 0 or self._tail.nbytes + len(fresh) >= wanted

    @property
    def record_nbytes(self) -> int:
        return self._format.record_nbytes

    def _window(self, values: Bytes, start: int, stop: int, most_rows: int) -> int:
        spare = self._header_left + self._format.footer_nbytes
        return min(stop, start + spare + most_rows * self._format.record_nbytes)

    def _begin_long(self, rest: Bytes) -> LongRecord | None:
        # The last footer_nbytes bytes received may be the footer, so they must stay in the tail.
        if self._format.footer_nbytes or self._header_left:
            return None
        long = LongRecord(self._format.record_nbytes)
        long.take(rest)
        return long

    def _cut_short(self, nbytes: int) -> str:
        found = f"{nbytes} bytes remain after the last {self._format.record_nbytes}-byte record"
        return f"{found}; check record_nbytes, header_nbytes and footer_nbytes"

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        skipped = min(self._header_left, stop - start)
        self._header_left -= skipped
        first = start + skipped
        size = self._format.record_nbytes
        count = max(stop - first - self._format.footer_nbytes, 0) // size
        starts = first + size * np.arange(count, dtype=np.int64)
        return Cut(VarColumn(values, starts, np.full(count, size, np.int64)), first + count * size)

    def _end(self, tail: Bytes) -> Cut:
        left_over = len(tail) - self._format.footer_nbytes
        problem = None
        if self._header_left:
            problem = f"the stream ends {self._header_left} bytes before the end of its header"
        elif left_over < 0:
            problem = f"the stream ends {-left_over} bytes before the end of its footer"
        elif left_over:
            problem = self._cut_short(left_over)
        return Cut(no_records(), 0, problem)
