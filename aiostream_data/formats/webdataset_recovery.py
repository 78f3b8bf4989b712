"""Find the next sound sample after damage in a tar archive.

The members of a damaged sample are skipped up to the first header with another key. If a header is damaged, the search
continues at the next block of 512 bytes that is a valid header. The first sample that the search finds is skipped as
well, because some of its members may be part of the damaged bytes. Therefore no sample lacks a member.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aiostream_data import _native
from aiostream_data._native.tar_py import BLOCK, END, FIRST, KEY_HASH, KEY_NBYTES, MORE, TarWalk
from aiostream_data.formats.base import Loss
from aiostream_data.formats.cutting import Bytes
from aiostream_data.rows.columns import VarColumn


class WebDatasetRecovery:
    """Parser that finds the next sound sample. See :class:`~.base.Recovery`."""

    def __init__(self) -> None:
        self.consumed = 0
        self.in_sync = True
        self.wanted = BLOCK
        self._reason = "a sample is damaged"
        self._lost_from: int | None = None
        self._key: int | None = None  # key of the sample that is skipped
        self._next = 0  # stream offset of the next header
        self._is_searching = False

    def explain(self, reason: str) -> None:
        """Set the reason of the next loss."""
        self._reason = reason

    def begin(self) -> None:
        self._lost_from, self._key, self._is_searching = None, None, False
        self.in_sync, self.wanted = False, BLOCK

    def cut(self, values: Bytes, start: int, stop: int, base: int, end: int | None) -> Iterator[VarColumn | Loss]:
        self.in_sync, self.wanted = False, BLOCK
        if self._lost_from is None:
            self._lost_from = self._next = base + start
        at = self._advance(values, stop, base)
        self.consumed = min(at, stop)
        if self.in_sync:
            yield Loss(self._lost_from, base + at - self._lost_from, self._reason)
        elif stop == end:
            yield Loss(self._lost_from, None, self._reason)
            self.consumed, self.in_sync = stop, True
        if self.in_sync:
            self._lost_from = None

    def _advance(self, values: Bytes, stop: int, base: int) -> int:
        """Skip members or search for a header. Return the index of the next sample, or of the first unread byte."""
        at = self._next - base
        while at < stop:
            if self._is_searching:
                found = _native.find_tar_header(values, at, stop)
                at = found if found >= 0 else at + (stop - at) // BLOCK * BLOCK
                if found < 0:
                    break
                self._is_searching, self._key = False, None
            walk = _native.walk_tar(values, np.array([at], np.int64), np.array([stop], np.int64))
            other = self._other_key(walk)
            if other is not None or walk.verdict == END:
                self.in_sync, at = True, walk.at if other is None else other
                break
            at = walk.at
            if walk.verdict == MORE:
                self.wanted = max(BLOCK, walk.wanted - min(at, stop))
                break
            at, self._is_searching = walk.fault_at + BLOCK, True
        self._next = base + at
        return at

    def _other_key(self, walk: TarWalk) -> int | None:
        """Return the index of the first member with another key than the skipped sample."""
        for row in np.flatnonzero(walk.table[:, KEY_NBYTES] >= 0).tolist():
            key = int(walk.table[row, KEY_HASH])
            if self._key is None:
                self._key = key
            elif key != self._key:
                return int(walk.table[row, FIRST])
        return None
