"""Skip damaged records: cut a stream as its format does, and recover behind damage.

How this works. The format's own framer cuts the stream until it fails. Then a :class:`~.base.Recovery` gets the bytes
from the damaged record on. When it is in sync again, a new framer takes over. So the bytes in front of damage cost what
they cost without this.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

import numpy as np

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import KnowsEnd, Loss, Recovers, Report
from aiostream_data.formats.cutting import MOST_ROWS, Bytes, CuttingFramer, RecordTail
from aiostream_data.rows.records import VarColumn

REPORTED_AT_ONCE: Final = 1024
"""Losses after which an empty column is returned, so that the caller of the framer can stop."""

NO_ROWS: Final = np.empty(0, np.int64)


class SkippingFramer:
    """A framer that reports damage and goes on behind it. See :class:`~.base.Framer`.

    Args:
        report: Receives each loss.
    """

    def __init__(self, description: Recovers, url: str, report: Report) -> None:
        self._description = description
        self._url = url
        self._report = report
        self._recovery = description.recovery()
        self._framer = self._new_framer(0)
        self._held: RecordTail | None = None  # bytes for the recovery, while it is at work
        self._offset = 0  # of the first of them
        self._nbytes: int | None = None  # of the stream
        self._shift: int | None = None  # of the column that the recovery gave last
        self._is_recovered = False  # the last column

    def resume(self, offset: int) -> None:
        """Begin at a record that starts at byte ``offset`` of the stream."""
        self._framer.resume(offset)

    def ends_at(self, nbytes: int) -> None:
        """Note the length of the stream. A record that declares more than is left of it is damaged."""
        self._nbytes = nbytes

    @property
    def offset(self) -> int:
        """Byte of the stream behind all records that were given out, and all damage that was reported."""
        return self._framer.offset if self._held is None else self._offset

    def offset_of(self, start: int) -> int | None:
        """Return the byte of the stream at which a record begins. See :meth:`.CuttingFramer.offset_of`."""
        if self._is_recovered:
            return None if self._shift is None else self._shift + start
        return self._framer.offset_of(start)

    @property
    def held_nbytes(self) -> int:
        """Bytes of memory held for records that are incomplete, or were not found yet."""
        return self._framer.held_nbytes if self._held is None else self._held.held_nbytes

    @property
    def tail_nbytes(self) -> int:
        """Bytes of it that the next block is joined to."""
        return self._framer.tail_nbytes if self._held is None else self._held.nbytes

    @property
    def record_nbytes(self) -> int:
        """Bytes that are gathered before anything more is given."""
        return self._framer.record_nbytes if self._held is None else max(self._held.nbytes, self._recovery.wanted)

    def feed(self, block: Bytes, headroom: int, most_rows: int = MOST_ROWS) -> Iterator[VarColumn]:
        """Yield the records that are complete with this block, and report damage between them.

        Raises:
            CorruptRecordError: A record goes on behind the end of the stream.
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
        """Yield the records that the end of the stream completes.

        Raises:
            CorruptRecordError: The last record is damaged, or cut short. Everything from ``offset`` on is lost.
        """
        if self._held is not None:
            self._nbytes = self._offset + self._held.nbytes
            yield from self._go_on(self._held.taken(), MOST_ROWS)
        self._is_recovered = False
        yield from self._framer.finish()

    def abandon(self) -> Iterator[VarColumn]:
        """Yield records that were found behind damage, as the stream cannot be read any further.

        ``offset`` is then the place from which everything is lost.
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
        """Recover, and let a framer take over where that is done; once more if it fails.

        Args:
            rest: Bytes of the stream from ``_offset`` on.
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
        self._held, self._framer = None, self._new_framer(offset)

    def _new_framer(self, offset: int) -> CuttingFramer:
        framer = self._description.framer(self._url)
        assert isinstance(framer, CuttingFramer)
        framer.resume(offset)
        return framer

    def _framed(self, block: Bytes, headroom: int, most_rows: int) -> Generator[VarColumn, None, Bytes | None]:
        """Yield records as the format's framer gives them; return the bytes from a damaged record on, or None."""
        self._is_recovered = False
        try:
            yield from self._framer.feed(block, headroom, most_rows)
        except CorruptRecordError as error:
            return self._damaged(error)
        if self._nbytes is not None and isinstance(self._framer, KnowsEnd):
            self._framer.check_end(self._nbytes)
        return None

    def _damaged(self, error: CorruptRecordError) -> Bytes:
        """Let the recovery begin; return the bytes from the damaged record on."""
        self._offset = error.offset
        self._recovery.begin()
        pieces = self._framer.unread()
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _recovered(
        self, rest: Bytes, end: int | None, most_rows: int, lost: list[int] | None = None
    ) -> Iterator[VarColumn]:
        """Yield records that the recovery finds, and report losses.

        Args:
            rest: Bytes of the stream from ``_offset`` on.
            end: Index at which the stream ends, if that is known.
            lost: Instead of being reported, a loss up to the end of the bytes is noted here by its offset.
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
