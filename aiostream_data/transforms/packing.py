"""Pack rows of differing length into bins of one length: which piece of which row goes into which bin.

How this works. A few bins are open at a time. A row goes into the first open bin, in the order in which
they were opened, that has room for it. When none has, the fullest bin is closed, if as many are open as
may be, and the row begins a new one. A bin without room is closed at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import AiostreamError, PlanError

TooLong = Literal["error", "split", "truncate", "drop"]
"""What becomes of rows that are longer than a bin."""

TOO_LONG: Final = get_args(TooLong)


class RowTooLongError(AiostreamError, ValueError):
    """A row does not fit into a bin.

    Attributes:
        row: Its number in the stream.
        length: Its length.
    """

    def __init__(self, row: int, length: int) -> None:
        super().__init__(f"row {row} has length {length}")
        self.row = row
        self.length = length


class PackedPiece(NamedTuple):
    """Values ``start`` (included) to ``stop`` (excluded) of row ``row``; ``is_last`` when none follow elsewhere."""

    row: int
    start: int
    stop: int
    is_last: bool = True


class Bin:
    """Pieces that will lie one after another in one packed row."""

    __slots__ = ("pieces", "room")

    def __init__(self, room: int, pieces: Iterable[PackedPiece] = ()) -> None:
        self.room = room
        self.pieces: list[PackedPiece] = []
        for piece in pieces:
            self.put(piece)

    def put(self, piece: PackedPiece) -> None:
        self.pieces.append(piece)
        self.room -= piece.stop - piece.start

    def copy(self) -> Bin:
        other = Bin(self.room)
        other.pieces = list(self.pieces)
        return other


class PackOrder:
    """First-fit packing over a bounded number of open bins; resumable. Rows of length 0 are dropped.

    Args:
        max_length: What a bin holds; at least 1.
        open_bins: Bins that may be open at once; 1 keeps the rows' order.
        too_long: What becomes of longer rows: "error", "split" into pieces of ``max_length`` and a rest,
            "truncate" to ``max_length``, or "drop".

    Attributes:
        pushed: How many rows have come.
        dropped: How many of them were left out.
    """

    def __init__(self, max_length: int, open_bins: int = 16, too_long: TooLong = "error") -> None:
        if min(max_length, open_bins) < 1:
            raise PlanError(f"max_length and open_bins must be at least 1, got {max_length} and {open_bins}")
        if too_long not in TOO_LONG:
            raise PlanError(f"too_long must be one of {', '.join(TOO_LONG)}, got {too_long!r}")
        self.max_length = max_length
        self.open_bins = open_bins
        self.too_long = too_long
        self.pushed = 0
        self.dropped = 0
        self._open: list[Bin] = []
        self._closed: deque[Bin] = deque()

    def push(self, lengths: NDArray[np.int64], limit: int | None = None) -> list[Bin]:
        """Take in rows of these lengths; return the bins that were closed, in order.

        Args:
            limit: Take in rows only until so many bins came; ``pushed`` tells how many that were.

        Raises:
            RowTooLongError: A row is longer than a bin, and that is an error.
        """
        given = self._given([], limit)
        for length in lengths.tolist():
            if len(given) == limit:
                break
            self._take(length)
            if self._closed:
                given = self._given(given, limit)
        return given

    def finish(self, limit: int | None = None) -> list[Bin]:
        """Return what is left when no row follows, ``limit`` bins at most; call again for what follows."""
        self._closed += self._open
        self._open = []
        return self._given([], limit)

    def held(self) -> NDArray[np.int64]:
        """Return the row of every piece that no bin was given with yet, bin by bin: a row may come twice."""
        return np.array([piece.row for held in self._bins() for piece in held.pieces], np.int64)

    def rows_held(self) -> int:
        """Return how many rows have their last piece in no bin that was given."""
        return sum(piece.is_last for held in self._bins() for piece in held.pieces)

    def state(self) -> dict[str, Any]:
        """Return the position as plain data; with it belong the rows of :meth:`held`.

        ``bins`` says how many pieces each bin has, of which the first ``closed`` ones take no more;
        ``cuts`` names the pieces that may not be whole rows by their place in :meth:`held`.
        """
        pieces = [piece for held in self._bins() for piece in held.pieces]
        cuts = [[place, *piece[1:]] for place, piece in enumerate(pieces) if self._may_be_cut(piece)]
        return {"bins": [len(held.pieces) for held in self._bins()], "closed": len(self._closed), "cuts": cuts}

    def restore(self, state: dict[str, Any], lengths: NDArray[np.int64]) -> None:
        """Go to a position. The rows that were held now count as the first that came, one for every piece.

        Args:
            lengths: Of the held rows, in the order of :meth:`held`.

        Raises:
            ValueError: These cannot be the rows that were held.
        """
        sizes, closed = state["bins"], state["closed"]
        if min(sizes, default=1) < 1 or sum(sizes) != len(lengths) or not 0 <= closed <= len(sizes):
            raise ValueError(f"{sizes} rows were held in bins, {len(lengths)} are given back")
        pieces = [PackedPiece(row, 0, length) for row, length in enumerate(lengths.tolist())]
        for place, start, stop, is_last in state["cuts"]:
            if not 0 <= start < stop <= pieces[place].stop:
                raise ValueError(f"row {place} of those that were held had at least {stop} values")
            pieces[place] = PackedPiece(place, start, stop, bool(is_last))
        stops = np.cumsum(sizes).tolist()
        bins = [Bin(self.max_length, pieces[stop - size : stop]) for stop, size in zip(stops, sizes, strict=True)]
        if any(held.room < 0 for held in bins):
            raise ValueError("the rows given back are longer than those that were held in bins")
        self.pushed = len(lengths)
        self._closed, self._open = deque(bins[:closed]), bins[closed:]

    def copy(self) -> PackOrder:
        """Return another order at the same position."""
        other = PackOrder(self.max_length, self.open_bins, self.too_long)
        other.pushed, other.dropped = self.pushed, self.dropped
        other._closed, other._open = deque(self._closed), [held.copy() for held in self._open]
        return other

    def _bins(self) -> list[Bin]:
        return [*self._closed, *self._open]

    def _may_be_cut(self, piece: PackedPiece) -> bool:
        return piece.start > 0 or piece.stop == self.max_length

    def _given(self, given: list[Bin], limit: int | None) -> list[Bin]:
        while self._closed and len(given) != limit:
            given.append(self._closed.popleft())
        return given

    def _take(self, length: int) -> None:
        row, self.pushed = self.pushed, self.pushed + 1
        if length <= self.max_length or self.too_long == "truncate":
            if length:
                self._place(PackedPiece(row, 0, min(length, self.max_length)))
            else:
                self.dropped += 1
        elif self.too_long == "split":
            for start in range(0, length, self.max_length):
                stop = min(start + self.max_length, length)
                self._place(PackedPiece(row, start, stop, stop == length))
        elif self.too_long == "drop":
            self.dropped += 1
        else:
            raise RowTooLongError(row, length)

    def _place(self, piece: PackedPiece) -> None:
        size = piece.stop - piece.start
        found = next((held for held in self._open if held.room >= size), None)
        if found is None:
            # A row that fills a bin by itself needs none of the open ones, but must not overtake a lone one.
            if len(self._open) == self.open_bins and (size < self.max_length or self.open_bins == 1):
                self._close(min(self._open, key=lambda held: held.room))
            found = Bin(self.max_length)
            self._open.append(found)
        found.put(piece)
        if not found.room:
            self._close(found)

    def _close(self, closed: Bin) -> None:
        self._open.remove(closed)
        self._closed.append(closed)
