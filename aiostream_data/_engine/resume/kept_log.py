"""How many rows of its input a filter had gone through when it had given so many."""

from __future__ import annotations

from collections import deque
from threading import Lock

import numpy as np
from numpy.typing import NDArray


class KeptRun:
    """Consecutive input rows that are filtered in one hop. ``kept`` is set by the thread that does it."""

    __slots__ = ("kept", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.kept: NDArray[np.int64] | None = None


class KeptLog:
    """Pieces in order of the input, which is that of the output. Safe from any thread."""

    def __init__(self) -> None:
        self._pieces: deque[KeptRun] = deque()
        self._lock = Lock()
        self._first_in = 0
        self._first_out = 0

    def begin(self, rows: int) -> KeptRun:
        """Note that the next rows of the input are about to be filtered."""
        piece = KeptRun(rows)
        with self._lock:
            self._pieces.append(piece)
        return piece

    def input_rows(self, given: int) -> int:
        """Return the most input rows that stand for ``given`` rows of output, as far as they are filtered."""
        with self._lock:
            before, left = self._first_in, given - self._first_out
            for piece in self._pieces:
                if piece.kept is None or left < len(piece.kept):
                    return before + (int(piece.kept[left - 1]) + 1 if piece.kept is not None and left > 0 else 0)
                left -= len(piece.kept)
                before += piece.rows
            return before

    def forget(self, given: int) -> None:
        """Discard history before row ``given``."""
        with self._lock:
            while self._pieces:
                kept = self._pieces[0].kept
                if kept is None or self._first_out + len(kept) > given:
                    return
                self._first_in += self._pieces.popleft().rows
                self._first_out += len(kept)
