"""Log of a filter that maps numbers of output rows to numbers of input rows."""

from __future__ import annotations

from collections import deque
from threading import Lock

import numpy as np
from numpy.typing import NDArray


class KeptRun:
    """Consecutive input rows that a filter processes in one hop (one call on a worker).

    The worker thread sets ``kept``, the numbers of the rows that pass the filter.
    """

    __slots__ = ("kept", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.kept: NDArray[np.int64] | None = None


class KeptLog:
    """Log of the hops (calls on workers) of an ordered filter, in the order of the input. Safe from any thread."""

    def __init__(self) -> None:
        self._pieces: deque[KeptRun] = deque()
        self._lock = Lock()
        self._first_in = 0
        self._first_out = 0

    def begin(self, rows: int) -> KeptRun:
        """Record that one call on a worker (hop) will filter the next ``rows`` input rows."""
        piece = KeptRun(rows)
        with self._lock:
            self._pieces.append(piece)
        return piece

    def input_rows(self, given: int) -> int:
        """Return the number of input rows that lead to the filter's first ``given`` output rows."""
        with self._lock:
            before, left = self._first_in, given - self._first_out
            for piece in self._pieces:
                if piece.kept is None or left < len(piece.kept):
                    return before + (int(piece.kept[left - 1]) + 1 if piece.kept is not None and left > 0 else 0)
                left -= len(piece.kept)
                before += piece.rows
            return before

    def forget(self, given: int) -> None:
        """Discard the history before output row ``given``, which no saved state will need."""
        with self._lock:
            while self._pieces:
                kept = self._pieces[0].kept
                if kept is None or self._first_out + len(kept) > given:
                    return
                self._first_in += self._pieces.popleft().rows
                self._first_out += len(kept)
