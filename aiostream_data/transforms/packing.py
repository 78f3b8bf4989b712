"""Pack rows of different lengths into bins of one length: each row, or each piece of a row, is assigned to a bin.

How this works. Only a limited number of bins is open at the same time. A row goes into the oldest open bin that has
enough room. If no open bin has enough room, the row starts a new bin. If the limit of open bins is reached, the fullest
bin is closed first. A bin is closed as soon as it is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import AiostreamError, PlanError

TooLong = Literal["error", "split", "truncate", "drop"]
"""Policy for rows that are longer than a bin of ``pack()``."""

TOO_LONG: Final = get_args(TooLong)


class RowTooLongError(AiostreamError, ValueError):
    """Error for a row that is longer than a bin.

    Attributes:
        row: Number of the row in the input stream.
        length: Length of the row.
    """

    def __init__(self, row: int, length: int) -> None:
        super().__init__(f"row {row} has length {length}")
        self.row = row
        self.length = length


class PackedPiece(NamedTuple):
    """Piece of a row: values ``start`` (inclusive) to ``stop`` (exclusive).

    ``is_last`` marks the last piece of the row.
    """

    row: int
    start: int
    stop: int
    is_last: bool = True


class Bin:
    """The pieces of one packed row, in order."""

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
    """First-fit packing of rows into bins, with a limited number of open bins.

    Resumable. Packing drops rows of length 0.

    Args:
        max_length: Length of a bin in values; at least 1.
        open_bins: Maximum number of open bins; with 1, the rows keep their order.
        too_long: Policy for rows longer than ``max_length``: "error", "split" into pieces, "truncate" to
            ``max_length``, or "drop".

    Attributes:
        pushed: Number of rows received so far.
        dropped: Number of rows dropped so far.
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
        """Add rows of these lengths to the bins. Return the newly closed bins, in order.

        Args:
            lengths: Length of each row, int64.
            limit: Maximum number of closed bins, after which no more rows are added; ``pushed`` counts the added rows.

        Raises:
            RowTooLongError: A row is longer than a bin, and ``too_long`` is "error".
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
        """End the stream. Return up to ``limit`` of the remaining bins; further calls return the others."""
        self._closed += self._open
        self._open = []
        return self._given([], limit)

    def held(self) -> NDArray[np.int64]:
        """Return the row number of each piece in the bins that were not returned yet. Row numbers can repeat."""
        return np.array([piece.row for held in self._bins() for piece in held.pieces], np.int64)

    def rows_held(self) -> int:
        """Return the number of rows whose last piece is in a bin that :meth:`push` has not returned yet."""
        return sum(piece.is_last for held in self._bins() for piece in held.pieces)

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data.

        Restoring the position also requires the rows that :meth:`held` lists.

        In the state, ``bins`` lists the number of pieces in each bin. The first ``closed`` bins of the state are
        closed. In the state, ``cuts`` lists the pieces that may be only part of a row, by their index in the result of
        :meth:`held`.
        """
        pieces = [piece for held in self._bins() for piece in held.pieces]
        cuts = [[place, *piece[1:]] for place, piece in enumerate(pieces) if self._may_be_cut(piece)]
        return {"bins": [len(held.pieces) for held in self._bins()], "closed": len(self._closed), "cuts": cuts}

    def restore(self, state: dict[str, Any], lengths: NDArray[np.int64]) -> None:
        """Restore a position saved by :meth:`state`.

        The buffered rows are renumbered from 0, with one number per piece.

        Args:
            state: Result of :meth:`state`.
            lengths: Lengths of the buffered rows, in the same order as the result of :meth:`held`.

        Raises:
            ValueError: The lengths do not match the saved state.
        """
        sizes, closed = state["bins"], state["closed"]
        if min(sizes, default=1) < 1 or sum(sizes) != len(lengths) or not 0 <= closed <= len(sizes):
            raise ValueError(f"the bins held {sizes} rows, but {len(lengths)} rows were recomputed")
        pieces = [PackedPiece(row, 0, length) for row, length in enumerate(lengths.tolist())]
        for place, start, stop, is_last in state["cuts"]:
            if not 0 <= start < stop <= pieces[place].stop:
                raise ValueError(f"row {place} of the bins must have at least {stop} values")
            pieces[place] = PackedPiece(place, start, stop, bool(is_last))
        stops = np.cumsum(sizes).tolist()
        bins = [Bin(self.max_length, pieces[stop - size : stop]) for stop, size in zip(stops, sizes, strict=True)]
        if any(held.room < 0 for held in bins):
            raise ValueError("the recomputed rows are longer than the rows that the bins held")
        self.pushed = len(lengths)
        self._closed, self._open = deque(bins[:closed]), bins[closed:]

    def copy(self) -> PackOrder:
        """Return a copy of this pack order at the same position."""
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
            # A piece that fills a bin needs no open bin. With one open bin, that bin closes first to keep the order.
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
