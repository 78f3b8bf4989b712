"""Enforce the size limit of a cache folder that several processes fill, without locks or a database.

Before a process writes, it creates a *claim*: a file whose name contains the number of bytes to reserve. The process
then sums the sizes of all pieces and all claims. The process writes only if the sum is within the limit, and evicts
pieces first if necessary. If two processes create claims at the same time, the process that scans later finds both
claims, so the limit holds. A written piece counts twice until its process creates a new claim, so the sum can be too
high but never too low.

One claim covers many pieces, so scans of the folder are rare. A new claim also reserves the bytes of writes in
progress. Every scan removes the files of killed processes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection
from time import monotonic
from typing import Final

from aiostream_data.storage.cache.counters import CacheCounters
from aiostream_data.storage.cache.eviction import HeldPiece, victims
from aiostream_data.storage.cache.owners import ABANDONED_S, is_abandoned, this_host
from aiostream_data.storage.cache.piece_file import disk_nbytes
from aiostream_data.storage.cache.spans import ByteSpan
from aiostream_data.storage.cache.tree import Tree

CLAIM_SHARE: Final = 64
CLAIM_NBYTES: Final = 1 << 30
"""A claim reserves 1/64 of the cache limit, at most 1 GiB, and at least the size of the next piece."""

FULL_S: Final = 2.0
"""Seconds to wait before the next scan when the cache is full and nothing can be evicted."""

RENEW_S: Final = ABANDONED_S / 3
"""Seconds after which a process renews its claim, so that other processes do not treat the claim as abandoned."""


EMPTY_NS: Final = 60 * 10**9
"""Age in nanoseconds after which the empty folder of an object is removed."""


class Room:
    """Budget of bytes that this process may write to the cache folder. Thread-safe; blocking.

    Args:
        tree: Access to the files of the cache folder.
        limit: Maximum total size of all files in the folder, in bytes.
        pinned: Function that returns the keys of objects that must not be evicted.
        counters: Cache counters, to which evictions are added.
        clock: Function that returns monotonic seconds.
        draw: Function that returns random numbers, uniform in [0, 1), to select the objects to evict.
    """

    def __init__(
        self,
        tree: Tree,
        limit: int,
        pinned: Callable[[], Collection[str]],
        counters: CacheCounters,
        clock: Callable[[], float] = monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._tree = tree
        self._limit = limit
        self._pinned = pinned
        self._counters = counters
        self._clock = clock
        self._draw = draw
        self._host = this_host()
        self._lock = threading.Lock()
        self._claim = ""
        self._now_ns = 0  # file system time of the latest claim
        self._claimed_at = clock()
        self._left = 0
        self._writing = 0
        self._full_until = clock()

    def take(self, nbytes: int) -> bool:
        """Reserve ``nbytes`` and return True if the limit permits the reservation.

        After writing, call :meth:`written`.

        Raises:
            OSError: The folder cannot be read or written to.
        """
        with self._lock:
            is_old = self._clock() - self._claimed_at > RENEW_S
            if (is_old or nbytes > self._left) and not self._claim_anew(nbytes):
                return False
            self._left -= nbytes
            self._writing += nbytes
            return True

    def written(self, nbytes: int) -> None:
        """Release ``nbytes`` reserved by :meth:`take`, after the write has succeeded or failed."""
        with self._lock:
            self._writing -= nbytes

    def tidy(self) -> None:
        """Remove the claims and partial files of killed processes.

        Raises:
            OSError: The folder cannot be written to.
        """
        with self._lock:
            self._say(0)
            self._claims_of_others()

    def close(self) -> None:
        """Remove the claim of this process. No writes may follow."""
        with self._lock:
            self._left = 0
            if self._claim:
                self._tree.drop(self._claim)
                self._claim = ""

    def _claim_anew(self, nbytes: int) -> bool:
        if self._clock() < self._full_until:
            return False
        self._left = 0
        most = max(nbytes, min(self._limit // CLAIM_SHARE, CLAIM_NBYTES))
        self._say(self._writing + most)
        for portion in (most, nbytes):
            if self._make_room(self._writing + portion):
                self._say(self._writing + portion)
                self._left = portion
                return True
        self._say(self._writing)
        self._full_until = self._clock() + FULL_S
        return False

    def _say(self, nbytes: int) -> None:
        before = self._claim
        self._claim, self._now_ns = self._tree.claim(nbytes)
        self._claimed_at = self._clock()
        if before and before != self._claim:
            self._tree.drop(before)

    def _make_room(self, own: int) -> bool:
        others = self._claims_of_others()
        held = [self._held(key) for key in self._tree.objects()]
        self._remove_empty(held)
        need = sum(entry.nbytes for entry in held) + others + own - self._limit
        chosen = victims(held, need, self._pinned(), self._draw)
        if chosen is None:
            return False
        self._evict(chosen)
        return True

    def _held(self, key: str) -> HeldPiece:
        return HeldPiece(key, self._now_ns - self._tree.used_ns(key), tuple(self._tree.pieces(key).spans))

    def _remove_empty(self, held: list[HeldPiece]) -> None:
        """Remove old empty folders. An empty folder remains if a process is killed before it stores a piece."""
        for entry in held:
            if not entry.spans and entry.age > EMPTY_NS:
                self._tree.remove_if_empty(entry.key)

    def _evict(self, chosen: list[tuple[str, ByteSpan]]) -> None:
        for key, span in chosen:
            if self._tree.remove(key, span):
                self._counters.add(evictions=1, evicted_nbytes=disk_nbytes(span))
        for key in {key for key, _ in chosen}:
            self._tree.remove_if_empty(key)

    def _claims_of_others(self) -> int:
        """Sum the bytes that other processes have reserved in claims. Remove the files of dead processes."""
        claims: dict[str, int] = {}
        for file in self._tree.owned_files():
            if file.owner == self._tree.owner:
                continue
            if is_abandoned(file.owner, (self._now_ns - file.modified_ns) / 1e9, self._host):
                self._tree.drop(file.name)
            else:
                claims[file.owner] = max(claims.get(file.owner, 0), file.claimed)
        return sum(claims.values())
