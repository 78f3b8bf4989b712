"""Base class of framers. Framers split blocks of bytes into records. A block can end inside a record.

A format implements two methods. The method :meth:`CuttingFramer._cut` splits contiguous bytes into records, and
:meth:`CuttingFramer._completes` decides when to call ``_cut``. The base class joins records that span several blocks,
and tracks byte offsets. If bytes are damaged, the base class yields all records before the damage and then raises the
error.

An incomplete record at the end of a block is copied once, into the unused space (headroom) before the next block. If
the headroom is too small, the incomplete record and the next block are copied into a new buffer. A long record is
collected in a separate buffer (:mod:`.long_record`) and needs no second copy. Memory use depends only on the number of
bytes received, and not on the length that a record declares. The number of rows per column is limited, because each row
needs 32 bytes for its index and id.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.long_record import LONG_NBYTES, LongRecord, column_of
from aiostream_data.rows.columns import VarColumn, VarKind

Bytes = NDArray[np.uint8]

MOST_ROWS = 16384
"""Default maximum number of rows in a column of records."""

PIECE_NBYTES = 4 << 20
"""Maximum number of bytes that are allocated in advance for the rest of an incomplete record."""


class Cut(NamedTuple):
    """Result of splitting a range of bytes into records.

    Attributes:
        column: The complete records.
        consumed: Index of the first byte after the complete records.
        problem: Description of the damage at index ``consumed``; None if the bytes from ``consumed`` are not damaged.
    """

    column: VarColumn
    consumed: int
    problem: str | None = None


class RecordTail:
    """Buffer for the received part of an incomplete record.

    The bytes are stored in pieces and joined once. Each new piece is as large as all previous pieces together, up to
    ``PIECE_NBYTES``. A single growing array would temporarily need twice the memory of a long record.
    """

    def __init__(self) -> None:
        self._pieces: list[Bytes] = []
        self._room = 0  # unused bytes at the end of the last piece
        self.nbytes = 0

    @property
    def held_nbytes(self) -> int:
        """Memory allocated for the incomplete record in bytes, including unused space."""
        return self.nbytes + self._room

    def view(self) -> Bytes:
        """Return the buffered bytes as one array. The array is valid until the buffer changes."""
        if len(self._pieces) != 1 or self._room:
            self._pieces = [self._joined(self.nbytes)]
        return self._pieces[0]

    def taken(self) -> Bytes:
        """Return all buffered bytes as one array, and empty the buffer."""
        joined = self.view()
        self._pieces, self._room, self.nbytes = [], 0, 0
        return joined

    def append(self, piece: Bytes) -> None:
        """Append a copy of ``piece`` to the buffer."""
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
        """Join the buffered bytes and ``block[headroom:]``, and empty the buffer. Return (array, start, stop).

        If the buffered bytes fit into the headroom, the returned array is the block itself. If the headroom is too
        small, the returned array is new.
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
        """Return a new array of ``nbytes`` bytes that begins with the contents of all pieces.

        Each piece is freed after its bytes have been copied.
        """
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
    """Base class of framers (parsers) that split contiguous bytes into records."""

    prefix_nbytes = 0
    """Number of header bytes before the data of each record."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tail = RecordTail()
        self._long: LongRecord | None = None
        self._long_nbytes = 0  # stream bytes of the long record received so far
        self._offset = 0  # stream offset after the last yielded record
        self._failure: CorruptRecordError | None = None
        self._damaged: bytes | None = None  # data of a damaged long record
        self._rest: Bytes | None = None  # unparsed bytes after a damaged record
        self._shift: int | None = None

    @property
    def offset(self) -> int:
        """Byte offset in the stream after the last yielded record."""
        return self._offset

    def resume(self, offset: int) -> None:
        """Start at byte ``offset`` of the stream instead of at its beginning. A record must begin at this offset."""
        self._offset = offset

    def offset_of(self, start: int) -> int | None:
        """Return the byte offset of a record in the stream, or None if the column of the record is a re-encoded copy.

        Args:
            start: Index of the record's first byte in the last yielded column.
        """
        return None if self._shift is None else self._shift + start

    @property
    def held_nbytes(self) -> int:
        """Memory in bytes used for the incomplete record."""
        return self._tail.held_nbytes + (0 if self._long is None else self._long.received_nbytes)

    @property
    def tail_nbytes(self) -> int:
        """Number of buffered bytes to copy in front of the next block."""
        return self._tail.nbytes

    @property
    def record_nbytes(self) -> int:
        """Declared length of the incomplete record in bytes. If no length is declared, the number of bytes received."""
        return self.held_nbytes

    def feed(self, block: Bytes, headroom: int, most_rows: int = MOST_ROWS) -> Iterator[VarColumn]:
        """Yield the records that end in this block. See :meth:`.Framer.feed`."""
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
            mapped = column.values is values  # False: the records are a re-encoded copy
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
        """Yield the records that end at the end of the stream. See :meth:`.Framer.finish`."""
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
        """Return all received bytes from the start of the damaged record, in pieces.

        Call this method only once, after an error.
        """
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

    # -- hooks for formats that collect long records

    def _keep(self, rest: Bytes) -> None:
        """Buffer the received bytes of an incomplete record."""
        is_long = len(rest) > 0 and max(len(rest), self.record_nbytes) >= LONG_NBYTES
        self._long = self._begin_long(rest) if is_long else None
        self._long_nbytes = len(rest)
        if self._long is None:
            self._tail.append(rest)

    def _begin_long(self, rest: Bytes) -> LongRecord | None:
        """Create a buffer for the long record that begins with ``rest``, or return None if the record is not long."""
        return None

    def _extend(self, long: LongRecord, fresh: Bytes) -> int:
        """Append bytes to the long record.

        Return the number of bytes in ``fresh`` that belong to the record, including its terminator.
        """
        return long.take(fresh)

    def _is_whole(self, long: LongRecord) -> bool:
        return long.is_complete

    def _problem_of(self, data: bytes, suffix: bytes) -> str | None:
        """Describe the damage of a complete long record, or return None if the record is valid."""
        return None

    def _long_parts(self, data: bytes, suffix: bytes) -> list[bytes]:
        """Return the received part of a long record as it appears in the stream."""
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
        """Return the long record at the end of the stream.

        Raises:
            CorruptRecordError: The record is truncated.
        """
        raise self._failed(self._cut_short(self._long_nbytes))

    def _cut_short(self, nbytes: int) -> str:
        """Return the error text for a stream that ends ``nbytes`` bytes after the start of its last record."""
        return f"the stream ends {nbytes} bytes into a record"

    def _window(self, values: Bytes, start: int, stop: int, most_rows: int) -> int:
        """Return the end of the next range of bytes to split. The range contains at most about ``most_rows`` records.

        The range contains at least one complete record, unless the range ends at ``stop``.
        """
        return stop

    def _kind(self) -> VarKind:
        return "bytes"

    def _completes(self, fresh: Bytes) -> bool:
        """Return True if the buffered bytes and ``fresh`` together may contain a complete record or damage."""
        return True

    @abstractmethod
    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        """Find the complete records in ``values[start:stop]``; a record begins at ``start``."""

    @abstractmethod
    def _end(self, tail: Bytes) -> Cut:
        """Parse the last bytes of the stream.

        Return either the records or a description of the problem.
        """


def no_records(kind: VarKind = "bytes") -> VarColumn:
    """Return a column without rows."""
    none = np.empty(0, np.int64)
    return VarColumn(np.empty(0, np.uint8), none, none, kind)
