"""Which pieces of an object answer a read, and what is left to ask the store for; pure."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

PIECE_NBYTES: Final = 4 << 20
"""Most bytes of one piece, so that little is lost with one that is damaged."""

MERGE_NBYTES: Final = 4 << 20
"""Gaps no further apart than this are fetched in one request, although what lies between them is there."""


class ByteSpan(NamedTuple):
    """Bytes ``start`` (included) to ``stop`` (excluded) of an object."""

    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class Use(NamedTuple):
    """A piece, and the bytes of the object that are taken from it."""

    piece: ByteSpan
    wanted: ByteSpan


class Missing(NamedTuple):
    """What a read still needs.

    Attributes:
        fetches: Ranges to ask the store for, in order, apart from each other.
        gaps: The bytes within them that no piece holds, in order.
    """

    fetches: tuple[ByteSpan, ...] = ()
    gaps: tuple[ByteSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Cover:
    """How a read is answered: ``uses`` and the fetches of ``missing`` together are all its bytes, none twice."""

    uses: tuple[Use, ...]
    missing: Missing


class Pieces:
    """The pieces of one object, to be asked which of them hold a byte. Pieces may overlap."""

    def __init__(self, spans: Iterable[ByteSpan] = ()) -> None:
        self.spans = sorted(spans)
        self._longest = max((span.nbytes for span in self.spans), default=0)

    def holding(self, at: int) -> ByteSpan | None:
        """Return the piece that holds byte ``at`` and most of what follows; None when there is none."""
        found: ByteSpan | None = None
        for number in range(self._behind(at) - 1, -1, -1):
            span = self.spans[number]
            if span.start + self._longest <= at:
                break
            if span.stop > at and (found is None or span.stop > found.stop):
                found = span
        return found

    def next_start(self, at: int) -> int | None:
        """Return where the first piece behind byte ``at`` begins."""
        number = self._behind(at)
        return self.spans[number].start if number < len(self.spans) else None

    def with_one(self, span: ByteSpan) -> Pieces:
        """Return these and one more, without going through all."""
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
    """Return how to read ``wanted`` with the pieces there are and as few requests as make sense."""
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
    """Yield spans of at most ``nbytes`` that make up ``span``."""
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
