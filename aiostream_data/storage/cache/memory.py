"""Store cached pieces of objects in the memory of this process."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Final

from aiostream_data.storage.cache.counters import CacheCounters
from aiostream_data.storage.cache.eviction import HeldPiece, victims
from aiostream_data.storage.cache.piece_file import disk_nbytes
from aiostream_data.storage.cache.pins import Pins
from aiostream_data.storage.cache.spans import PIECE_NBYTES, ByteSpan, Missing, Pieces, cover, cut

EVICTED_SHARE: Final = 64
"""A full cache frees 1/64 of its limit in one step, so that evictions are rare."""


class PieceMemory:
    """Piece storage in memory. Each piece counts with the rounded-up size that its file would have in a disk cache.

    Args:
        limit: Maximum total size of all pieces in bytes.
        piece_nbytes: Maximum size of one piece in bytes.
        draw: Function that returns random numbers, uniform in [0, 1), to select the objects to evict.

    Attributes:
        peak_nbytes: Largest total size of the pieces so far, in bytes.
    """

    def __init__(
        self,
        limit: int,
        counters: CacheCounters,
        piece_nbytes: int = PIECE_NBYTES,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limit = limit
        self._counters = counters
        self._piece_nbytes = piece_nbytes
        self._draw = draw
        self._lock = threading.Lock()
        self._pins = Pins()
        self._uses = count()
        self._used: dict[str, int] = {}
        self._objects: dict[str, dict[ByteSpan, bytes]] = {}
        self._index: dict[str, Pieces] = {}
        self._nbytes = 0
        self.peak_nbytes = 0

    @property
    def nbytes(self) -> int:
        """Total size of the stored pieces in bytes."""
        return self._nbytes

    def pinned(self, key: str) -> AbstractContextManager[None]:
        return self._pins.holding(key)

    def read(self, key: str, wanted: ByteSpan, buffer: memoryview) -> Missing:
        with self._lock:
            plan = cover(wanted, self._index.get(key, Pieces()))
            found = [(use, self._objects[key][use.piece]) for use in plan.uses]
            if found:
                self._used[key] = next(self._uses)
        for (piece, part), data in found:  # copied without the lock: stored pieces never change
            into = buffer[part.start - wanted.start : part.stop - wanted.start]
            into[:] = memoryview(data)[part.start - piece.start : part.stop - piece.start]
        return plan.missing

    def write(self, key: str, span: ByteSpan, data: memoryview) -> None:
        for part in cut(span, self._piece_nbytes):
            piece = bytes(data[part.start - span.start : part.stop - span.start])
            with self._lock:
                self._keep(key, part, piece)

    def close(self) -> None:
        """Do nothing, so that the pieces stay cached for the next loader."""

    def _keep(self, key: str, span: ByteSpan, data: bytes) -> None:
        kept = self._objects.get(key, {})
        if span in kept:
            return
        if not self._make_room(disk_nbytes(span)):
            self._counters.add(passed=1)
            return
        kept = self._objects.setdefault(key, {})
        kept[span] = data
        self._index[key] = self._index.get(key, Pieces()).with_one(span)
        self._used[key] = next(self._uses)
        self._nbytes += disk_nbytes(span)
        self.peak_nbytes = max(self.peak_nbytes, self._nbytes)
        self._counters.add(kept_nbytes=span.nbytes)

    def _make_room(self, nbytes: int) -> bool:
        need = self._nbytes + nbytes - self._limit
        if need <= 0:
            return True
        now = next(self._uses)
        held = [HeldPiece(key, now - self._used[key], tuple(pieces.spans)) for key, pieces in self._index.items()]
        pinned = self._pins.keys()
        chosen = victims(held, max(need, self._limit // EVICTED_SHARE), pinned, self._draw)
        if chosen is None:
            chosen = victims(held, need, pinned, self._draw)
        for key, span in chosen or ():
            self._remove(key, span)
        for key in {key for key, _ in chosen or ()}:
            self._reindex(key)
        return chosen is not None

    def _remove(self, key: str, span: ByteSpan) -> None:
        del self._objects[key][span]
        self._nbytes -= disk_nbytes(span)
        self._counters.add(evictions=1, evicted_nbytes=disk_nbytes(span))

    def _reindex(self, key: str) -> None:
        if self._objects[key]:
            self._index[key] = Pieces(self._objects[key])
        else:
            del self._objects[key], self._index[key], self._used[key]
