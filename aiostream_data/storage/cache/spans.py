"""Plan a read: which cached pieces to use, and which byte ranges to request from the store. Pure functions."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

PIECE_NBYTES: Final = 4 << 20
"""Maximum size of one piece in bytes. Small pieces limit the loss if a piece is damaged."""

MERGE_NBYTES: Final = 4 << 20
"""Two uncached gaps are fetched in one request if at most this many cached bytes lie between them."""


class ByteSpan(NamedTuple):
    """Byte range of an object, from ``start`` (inclusive) to ``stop`` (exclusive)."""

    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class Use(NamedTuple):
    """A cached piece, and the byte range of the object to copy from this piece."""

    piece: ByteSpan
    wanted: ByteSpan


class Missing(NamedTuple):
    """Byte ranges that a read must request from the store.

    Attributes:
        fetches: Byte ranges to request from the store, ascending and disjoint.
        gaps: Parts of ``fetches`` that no cached piece contains, ascending.
    """

    fetches: tuple[ByteSpan, ...] = ()
    gaps: tuple[ByteSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Cover:
    """Plan of one read. Each byte is either copied from a piece in ``uses`` or fetched by ``missing``."""

    uses: tuple[Use, ...]
    missing: Missing


class Pieces:
    """Sorted cached pieces of one object, with lookup by byte offset. Pieces may overlap."""

    def __init__(self, spans: Iterable[ByteSpan] = ()) -> None:
        self.spans = sorted(spans)
        self._longest = max((span.nbytes for span in self.spans), default=0)

    def holding(self, at: int) -> ByteSpan | None:
        """Return the piece that contains byte ``at``, or None.

        If several pieces contain the byte, return the one that ends last.
        """
        found: ByteSpan | None = None
        for number in range(self._behind(at) - 1, -1, -1):
            span = self.spans[number]
            if span.start + self._longest <= at:
                break
            if span.stop > at and (found is None or span.stop > found.stop):
                found = span
        return found

    def next_start(self, at: int) -> int | None:
        """Return the start of the first piece that begins after byte ``at``, or None."""
        number = self._behind(at)
        return self.spans[number].start if number < len(self.spans) else None

    def with_one(self, span: ByteSpan) -> Pieces:
        """Return a copy with the piece ``span`` added, without sorting all pieces again."""
        more = Pieces()
        more.spans = self.spans.copy()
        if self.holding(span.start) != span:
            insort(more.spans, span)
        more._longest = max(self._longest, span.nbytes)
        return more

    def without(self, gone: Iterable[ByteSpan]) -> Pieces:
        left_out = set(gone)
        return Pieces(span for span in self.spans if span not in left_out)

    def _behind(self, at: int) -> int:
        return bisect_right(self.spans, at, key=lambda span: span.start)


def cover(wanted: ByteSpan, pieces: Pieces) -> Cover:
    """Plan how to read the range ``wanted`` from cached pieces and with few requests to the store."""
    uses: list[Use] = []
    gaps: list[ByteSpan] = []
    at = wanted.start
    while at < wanted.stop:
        piece = pieces.holding(at)
        if piece is not None:
            stop = min(piece.stop, wanted.stop)
            uses.append(Use(piece, ByteSpan(at, stop)))
        else:
            begins = pieces.next_start(at)
            stop = wanted.stop if begins is None else min(begins, wanted.stop)
            gaps.append(ByteSpan(at, stop))
        at = stop
    fetches = tuple(_merged(gaps))
    kept = tuple(use for use in uses if not any(_holds(fetch, use.wanted) for fetch in fetches))
    return Cover(kept, Missing(fetches, tuple(gaps)))


def cut(span: ByteSpan, nbytes: int = PIECE_NBYTES) -> Iterator[ByteSpan]:
    """Split a byte range into consecutive byte ranges of at most ``nbytes`` bytes."""
    for start in range(span.start, span.stop, nbytes):
        yield ByteSpan(start, min(start + nbytes, span.stop))


def _merged(gaps: list[ByteSpan]) -> Iterator[ByteSpan]:
    joined: ByteSpan | None = None
    for gap in gaps:
        if joined is None or gap.start - joined.stop > MERGE_NBYTES:
            if joined is not None:
                yield joined
            joined = gap
        else:
            joined = ByteSpan(joined.start, gap.stop)
    if joined is not None:
        yield joined


def _holds(outer: ByteSpan, inner: ByteSpan) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop
