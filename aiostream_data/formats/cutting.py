"""Cut records out of blocks that end anywhere: what the framers of all formats have in common.

A format says how to cut a contiguous run of bytes (:meth:`CuttingFramer._cut`) and when it is worth
trying (:meth:`CuttingFramer._completes`). Everything else is here: the record that a block's end cut in
two, byte offsets, and errors that come only after the good records before them were given out.

Memory: the tail of a block is copied once, into the next block's headroom. If it does not fit there, tail and block
are copied into a buffer of their own. A long record is gathered by itself (:mod:`.long_record`), and is in memory
once. Memory follows the bytes received, never a length that they claim. Columns have a bounded number of rows,
because the index of a row (16 bytes, and 16 of row id) can be larger than the row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.long_record import LONG_NBYTES, LongRecord, column_of
from aiostream_data.rows.records import VarColumn, VarKind

Bytes = NDArray[np.uint8]

MOST_ROWS = 16384
"""Most rows of a column, unless a reader asks for fewer."""

PIECE_NBYTES = 4 << 20
"""Most room that is made for more of a record than has come."""


class Cut(NamedTuple):
    """What one run of bytes held.

    Attributes:
        column: The complete records.
        consumed: Index into the bytes of the first one that belongs to no complete record.
        problem: What is wrong with the record that starts there; None when it is only incomplete.
    """

    column: VarColumn
    consumed: int
    problem: str | None = None


class RecordTail:
    """Bytes waiting for the rest of their record.

    They stand in pieces, each as large as all before it up to ``PIECE_NBYTES``, and are joined once: a long
    record is never there twice, as it would be each time that a single buffer grew.
    """

    def __init__(self) -> None:
        self._pieces: list[Bytes] = []
        self._room = 0  # bytes at the end of the last piece that are not used yet
        self.nbytes = 0

    @property
    def held_nbytes(self) -> int:
        """Bytes of memory held, room included."""
        return self.nbytes + self._room

    def view(self) -> Bytes:
        """Return the bytes, in one array; valid until the tail next changes."""
        if len(self._pieces) != 1 or self._room:
            self._pieces = [self._joined(self.nbytes)]
        return self._pieces[0]

    def taken(self) -> Bytes:
        """Return the bytes, in one array; the tail is then empty."""
        joined = self.view()
        self._pieces, self._room, self.nbytes = [], 0, 0
        return joined

    def append(self, piece: Bytes) -> None:
        """Copy ``piece`` to the end."""
        self.nbytes += len(piece)
        fits = min(len(piece), self._room)
        if fits:
            last = self._pieces[-1]
            start = len(last) - self._room
            last[start : start + fits] = piece[:fits]
            self._room -= fits
        rest = piece[fits:]
        if len(rest):
            fresh = np.empty(max(len(rest), min(self.nbytes, PIECE_NBYTES)), np.uint8)
            fresh[: len(rest)] = rest
            self._pieces.append(fresh)
            self._room = len(fresh) - len(rest)

    def join(self, block: Bytes, headroom: int) -> tuple[Bytes, int, int]:
        """Return the tail followed by ``block[headroom:]`` as (buffer, start, stop); the tail is then empty.

        The buffer is the block itself when the tail fits into its headroom, else one that the caller owns.
        """
        if self.nbytes <= headroom:
            start, values, stop = headroom - self.nbytes, block, len(block)
            if self.nbytes:
                block[start:headroom] = self.view()
        else:
            start, stop = 0, self.nbytes + len(block) - headroom
            values = self._joined(stop)
            values[self.nbytes :] = block[headroom:]
        self._pieces, self._room, self.nbytes = [], 0, 0
        return values, start, stop

    def _joined(self, nbytes: int) -> Bytes:
        """Return a new array of so many bytes that begins with all pieces; each is let go as it is copied."""
        joined = np.empty(nbytes, np.uint8)
        pieces, self._pieces, self._room = self._pieces[::-1], [], 0
        end = 0
        while pieces:
            piece = pieces.pop()
            used = min(len(piece), self.nbytes - end)
            joined[end : end + used] = piece[:used]
            end += used
        return joined


class CuttingFramer(ABC):
    """A framer for records that can be cut from a contiguous run of bytes."""

    prefix_nbytes = 0
    """Bytes that stand before the data of each record."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tail = RecordTail()
        self._long: LongRecord | None = None
        self._long_nbytes = 0  # of the stream, up to here
        self._offset = 0  # of the first byte in the stream that belongs to no record given out
        self._failure: CorruptRecordError | None = None
        self._damaged: bytes | None = None  # data of a long record that failed
        self._rest: Bytes | None = None  # received and not looked at, when the record before it failed
        self._shift: int | None = None

    @property
    def offset(self) -> int:
        """Byte of the stream behind the last record that was given out."""
        return self._offset

    def resume(self, offset: int) -> None:
        """Begin at a record that starts at byte ``offset`` of the stream, instead of at the stream's start."""
        self._offset = offset

    def offset_of(self, start: int) -> int | None:
        """Return the byte of the stream at which a record begins.

        Args:
            start: Where the record starts in the column that was returned last.
        """
        return None if self._shift is None else self._shift + start

    @property
    def held_nbytes(self) -> int:
        """Bytes of memory held for the record that a block's end cut in two."""
        return self._tail.held_nbytes + (0 if self._long is None else self._long.received_nbytes)

    @property
    def tail_nbytes(self) -> int:
        """Bytes of it that the next block is joined to."""
        return self._tail.nbytes

    @property
    def record_nbytes(self) -> int:
        """Bytes of that record, as far as they are known: bytes received, if the record does not declare its length."""
        return self.held_nbytes

    def feed(self, block: Bytes, headroom: int, most_rows: int = MOST_ROWS) -> Iterator[VarColumn]:
        """Yield the records that are complete with this block. See :class:`~.base.Framer`."""
        if self._failure is not None:
            raise self._failure
        if self._long is not None:
            used = self._extend(self._long, block[headroom:])
            self._long_nbytes += used
            headroom += used
            if not self._is_whole(self._long):
                return
            self._rest = block[headroom:]
            yield self._long_column(self._long)
            self._rest = None
        if not self._completes(block[headroom:]):
            self._tail.append(block[headroom:])
            if self._tail.nbytes >= LONG_NBYTES:
                self._keep(self._tail.taken())
            return
        values, start, stop = self._tail.join(block, headroom)
        del block
        while True:
            window = self._window(values, start, stop, most_rows)
            column, consumed, problem = self._cut(values, start, window)
            mapped = column.values is values  # else the records are a copy in another encoding
            self._shift = self._offset - start - self.prefix_nbytes if mapped else None
            self._offset += consumed - start
            if problem is not None:
                self._failed(problem)
                self._rest = values[consumed:stop]
            elif window == stop:
                self._keep(values[consumed:stop])
            if len(column):
                yield column
            if self._failure is not None:
                raise self._failure
            if window == stop:
                return
            start = consumed

    def finish(self) -> Iterator[VarColumn]:
        """Yield the records that the end of the stream completes. See :class:`~.base.Framer`."""
        if self._failure is not None:
            raise self._failure
        if self._long is not None:
            yield self._last_long(self._long)
            return
        tail = self._tail.view()
        column, _, problem = self._end(tail)
        self._shift = self._offset - self.prefix_nbytes if column.values is tail else None
        if problem is not None:
            raise self._failed(problem)
        self._tail = RecordTail()
        if len(column):
            yield column

    def unread(self) -> list[Bytes]:
        """Return all bytes received from the damaged record on, in pieces. Call it once, after a failure."""
        if self._long is not None:
            data = self._long.data() if self._damaged is None else self._damaged
            parts = self._long_parts(data, self._long.suffix)
            pieces = [np.frombuffer(part, np.uint8) for part in parts if part]
        else:
            pieces = [self._tail.taken()]
        received = [piece for piece in (*pieces, self._rest) if piece is not None and len(piece)]
        return received or [np.empty(0, np.uint8)]

    def _failed(self, problem: str) -> CorruptRecordError:
        self._failure = CorruptRecordError(self._url, self._offset, problem)
        return self._failure

    # -- long records: a format that gathers them overrides the hooks below

    def _keep(self, rest: Bytes) -> None:
        """Keep the bytes of a record of which a part has yet to come."""
        is_long = len(rest) > 0 and max(len(rest), self.record_nbytes) >= LONG_NBYTES
        self._long = self._begin_long(rest) if is_long else None
        self._long_nbytes = len(rest)
        if self._long is None:
            self._tail.append(rest)

    def _begin_long(self, rest: Bytes) -> LongRecord | None:
        """Return the long record that begins with ``rest``, or None to gather it with the tail."""
        return None

    def _extend(self, long: LongRecord, fresh: Bytes) -> int:
        """Append what belongs to the long record; return how many bytes that is, with its end."""
        return long.take(fresh)

    def _is_whole(self, long: LongRecord) -> bool:
        return long.is_complete

    def _problem_of(self, data: bytes, suffix: bytes) -> str | None:
        """Return what is wrong with a complete long record."""
        return None

    def _long_parts(self, data: bytes, suffix: bytes) -> list[bytes]:
        """Return a long record, or what was received of it, as it stands in the stream."""
        return [data, suffix]

    def _long_column(self, long: LongRecord) -> VarColumn:
        data = long.data()
        problem = self._problem_of(data, long.suffix)
        if problem is not None:
            self._damaged = data
            raise self._failed(problem)
        self._long = None
        self._shift = self._offset
        self._offset += self._long_nbytes
        return column_of(data, self._kind())

    def _last_long(self, long: LongRecord) -> VarColumn:
        """Return the long record that the end of the stream completes.

        Raises:
            CorruptRecordError: It is cut short.
        """
        raise self._failed(self._cut_short(self._long_nbytes))

    def _cut_short(self, nbytes: int) -> str:
        """Return what is wrong with a stream that ends ``nbytes`` bytes into a record."""
        return f"the stream ends {nbytes} bytes into a record"

    def _window(self, values: Bytes, start: int, stop: int, most_rows: int) -> int:
        """Return up to where to cut at once, so that no more than about ``most_rows`` records are found.

        There is at least one record before it, or it is ``stop``.
        """
        return stop

    def _kind(self) -> VarKind:
        return "bytes"

    def _completes(self, fresh: Bytes) -> bool:
        """Return whether the tail with these bytes behind it may hold a complete record, or a problem."""
        return True

    @abstractmethod
    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        """Cut the complete records out of ``values[start:stop]``, whose first byte starts a record."""

    @abstractmethod
    def _end(self, tail: Bytes) -> Cut:
        """Cut the last bytes of the stream: either what they hold or a problem, not both."""


def no_records(kind: VarKind = "bytes") -> VarColumn:
    """Return a column without rows."""
    none = np.empty(0, np.int64)
    return VarColumn(np.empty(0, np.uint8), none, none, kind)
