"""Cut records out of blocks that end anywhere: what the framers of all formats have in common.

A format says how to cut a contiguous run of bytes (:meth:`CuttingFramer._cut`) and when it is worth
trying (:meth:`CuttingFramer._completes`). Everything else is here: the record that a block's end cut in
two, byte offsets, and errors that come only after the good records before them were given out.

What is copied: the tail of a block, once, into the next block's headroom, or when it does not fit there,
tail and block into a buffer of their own. A record that spans many blocks is gathered in pieces, so its
cost is linear however small the blocks are, and memory follows the bytes received, never a length that
they claim.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError
from aiostream_data.records import VarColumn, VarKind

Bytes = NDArray[np.uint8]

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


class Tail:
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

    _prefix_nbytes = 0
    """Bytes that stand before the data of each record."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tail = Tail()
        self._offset = 0  # of the tail's first byte in the stream
        self._failure: CorruptRecordError | None = None
        self._shift: int | None = None

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
        """Bytes held for the record that a block's end cut in two."""
        return self._tail.held_nbytes

    @property
    def record_nbytes(self) -> int:
        """Bytes of that record, as far as they are known: what has come, where the record does not say."""
        return self._tail.nbytes

    def feed(self, block: Bytes, headroom: int) -> VarColumn:
        """Return the records that are complete with this block. See :class:`~.base.Framer`."""
        if self._failure is not None:
            raise self._failure
        if not self._completes(block[headroom:]):
            self._tail.append(block[headroom:])
            return no_records(self._kind())
        values, start, stop = self._tail.join(block, headroom)
        column, consumed, problem = self._cut(values, start, stop)
        mapped = column.values is values  # else the records are a copy in another encoding
        self._shift = self._offset - start - self._prefix_nbytes if mapped else None
        self._offset += consumed - start
        if problem is None:
            self._tail.append(values[consumed:stop])
            return column
        self._failure = CorruptRecordError(self._url, self._offset, problem)
        if not len(column):
            raise self._failure
        return column

    def finish(self) -> VarColumn:
        """Return what the end of the stream completes. See :class:`~.base.Framer`."""
        if self._failure is not None:
            raise self._failure
        tail = self._tail.view()
        column, _, problem = self._end(tail)
        self._shift = self._offset - self._prefix_nbytes if column.values is tail else None
        if problem is not None:
            self._failure = CorruptRecordError(self._url, self._offset, problem)
            raise self._failure
        self._tail = Tail()
        return column

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
