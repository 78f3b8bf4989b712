"""Framer (record parser) that skips damaged records and continues after the damage.

The format's own framer parses the stream until the framer finds damage. A :class:`~.base.Recovery` then parses the
bytes from the damaged record onward. When the recovery has found a valid record, a new framer continues from that
record. Therefore undamaged parts of a stream are parsed at full speed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

import numpy as np

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import HandsOver, KnowsEnd, Loss, Recovers, Report, TakesReason
from aiostream_data.formats.cutting import MOST_ROWS, Bytes, CuttingFramer, RecordTail
from aiostream_data.rows.columns import VarColumn

REPORTED_AT_ONCE: Final = 1024
"""Number of losses after which the framer yields an empty column. The empty column lets the caller stop reading."""

NO_ROWS: Final = np.empty(0, np.int64)


class SkippingFramer:
    """Framer that reports damaged bytes and continues with the next valid record. See :class:`~.base.Framer`.

    Args:
        description: Format of the records.
        url: URL of the object, for error messages.
        report: Function that is called with each loss (range of damaged bytes).
    """

    def __init__(self, description: Recovers, url: str, report: Report) -> None:
        self._description = description
        self._url = url
        self._report = report
        self._recovery = description.recovery()
        self._framer = self._new_framer(0)
        self._held: RecordTail | None = None  # bytes buffered for a recovery in progress
        self._offset = 0  # stream offset of the first byte in _held
        self._nbytes: int | None = None  # stream length
        self._shift: int | None = None  # stream offset minus column index, for the last recovered column
        self._is_recovered = False  # True if the recovery found the last column

    def resume(self, offset: int) -> None:
        """Start at byte ``offset`` of the stream, where a record begins."""
        self._framer.resume(offset)

    def succeed(self, earlier: CuttingFramer) -> None:
        """Take over what an earlier framer of the same stream remembers. See :meth:`.CuttingFramer.succeed`."""
        self._framer.succeed(earlier)

    def ends_at(self, nbytes: int) -> None:
        """Set the length of the stream. A record that extends beyond the end of the stream is damaged."""
        self._nbytes = nbytes

    @property
    def offset(self) -> int:
        """Byte offset in the stream after all yielded records and all reported losses."""
        return self._framer.offset if self._held is None else self._offset

    def offset_of(self, start: int) -> int | None:
        """Return the byte offset in the stream for a record of the last yielded column. See
        :meth:`.CuttingFramer.offset_of`."""
        if self._is_recovered:
            return None if self._shift is None else self._shift + start
        return self._framer.offset_of(start)

    @property
    def held_nbytes(self) -> int:
        """Memory in bytes used for incomplete records and for a recovery in progress."""
        return self._framer.held_nbytes if self._held is None else self._held.held_nbytes

    @property
    def tail_nbytes(self) -> int:
        """Number of buffered bytes to copy in front of the next block."""
        return self._framer.tail_nbytes if self._held is None else self._held.nbytes

    @property
    def record_nbytes(self) -> int:
        """Number of bytes that must be received before the next record can be returned."""
        return self._framer.record_nbytes if self._held is None else max(self._held.nbytes, self._recovery.wanted)

    def feed(self, block: Bytes, headroom: int, most_rows: int = MOST_ROWS) -> Iterator[VarColumn]:
        """Yield the records that end in this block, and report damaged bytes between the records.

        Raises:
            CorruptRecordError: A record extends beyond the end of the stream.
        """
        if self._held is None:
            rest = yield from self._framed(block, headroom, most_rows)
        else:
            self._held.append(block[headroom:])
            if self._held.nbytes < self._recovery.wanted and not self._holds_all:
                return
            rest = self._held.taken()
        del block
        if rest is not None:
            yield from self._go_on(rest, most_rows)

    def finish(self) -> Iterator[VarColumn]:
        """Yield the records that end at the end of the stream.

        Raises:
            CorruptRecordError: The last record is damaged or truncated. All bytes of the stream from ``offset`` onward
                are lost.
        """
        if self._held is not None:
            self._nbytes = self._offset + self._held.nbytes
            yield from self._go_on(self._held.taken(), MOST_ROWS)
        self._is_recovered = False
        yield from self._framer.finish()

    def abandon(self) -> Iterator[VarColumn]:
        """If the rest of the stream cannot be read, yield the records found so far after the damage.

        After this call, ``offset`` is the beginning of the lost bytes.
        """
        if self._held is None:
            return
        rest = self._held.taken()
        lost: list[int] = []
        yield from self._recovered(rest, len(rest), MOST_ROWS, lost)
        self._go_to(lost[0] if lost else self._offset + self._recovery.consumed)

    @property
    def _holds_all(self) -> bool:
        assert self._held is not None
        return self._nbytes is not None and self._offset + self._held.nbytes >= self._nbytes

    def _go_on(self, rest: Bytes | None, most_rows: int) -> Iterator[VarColumn]:
        """Run the recovery, and then continue with a new framer. Repeat both steps if the framer finds more damage.

        Args:
            rest: Received bytes of the stream from ``_offset`` onward.
            most_rows: Maximum number of rows per column.
        """
        while rest is not None:
            end = None if self._nbytes is None else self._nbytes - self._offset
            yield from self._recovered(rest, end, most_rows)
            consumed = self._recovery.consumed
            self._offset += consumed
            if not self._recovery.in_sync:
                self._held = RecordTail()
                self._held.append(rest[consumed:])
                return
            self._go_to(self._offset)
            rest = yield from self._framed(rest, consumed, most_rows)

    def _go_to(self, offset: int) -> None:
        earlier, self._held, self._framer = self._framer, None, self._new_framer(offset)
        self._framer.succeed(earlier)

    def _new_framer(self, offset: int) -> CuttingFramer:
        framer = self._description.framer(self._url)
        assert isinstance(framer, CuttingFramer)
        framer.resume(offset)
        return framer

    def _framed(self, block: Bytes, headroom: int, most_rows: int) -> Generator[VarColumn, None, Bytes | None]:
        """Yield the records that the format's own framer finds.

        Return the bytes from the first damaged record onward, or None if no record is damaged.
        """
        self._is_recovered = False
        try:
            yield from self._framer.feed(block, headroom, most_rows)
        except CorruptRecordError as error:
            return self._damaged(error)
        if self._nbytes is not None and isinstance(self._framer, KnowsEnd):
            self._framer.check_end(self._nbytes)
        return None

    def _damaged(self, error: CorruptRecordError) -> Bytes:
        """Start the recovery. Return the received bytes from the first damaged record onward."""
        self._offset = error.offset
        if isinstance(self._framer, HandsOver):
            self._framer.hand_over(self._recovery)
        self._recovery.begin()
        if isinstance(self._recovery, TakesReason):
            self._recovery.explain(error.reason)
        pieces = self._framer.unread()
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _recovered(
        self, rest: Bytes, end: int | None, most_rows: int, lost: list[int] | None = None
    ) -> Iterator[VarColumn]:
        """Yield the records that the recovery finds, and report the losses (damaged ranges).

        Args:
            rest: Received bytes of the stream from ``_offset`` onward.
            end: Index in ``rest`` at which the stream ends, or None if unknown.
            most_rows: Maximum number of rows per column.
            lost: List that receives the offset of a loss that extends to the end of the stream. If ``lost`` is None,
                the framer passes this loss to ``report`` instead.
        """
        reported = 0
        for part in self._recovery.cut(rest, 0, len(rest), self._offset, end):
            if isinstance(part, Loss):
                if lost is not None and part.nbytes is None:
                    lost.append(part.offset)
                    continue
                self._report(part)
                reported += 1
                if reported % REPORTED_AT_ONCE == 0:
                    yield VarColumn(rest, NO_ROWS, NO_ROWS)
                continue
            self._is_recovered = True
            self._shift = self._offset - self._framer.prefix_nbytes if part.values is rest else None
            for first in range(0, len(part), most_rows):
                yield part.slice(first, first + most_rows)
