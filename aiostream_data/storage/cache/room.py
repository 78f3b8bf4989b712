"""Room for new pieces in a folder that several processes fill, without a lock or a database.

How this works. Before a process writes, it says so by a file whose name holds a number of bytes: its claim. Then it
adds up everything there is, pieces and the claims of all, and goes on only when that fits into the limit, or does
after pieces were evicted. Of two processes that claim at once, at least the one that looks later sees both claims, so
that they never pass the limit together; what they have written is counted twice for a while, which is on the safe
side. A claim is for many pieces, so that looking through the folder is rare. What a process has begun to write when it
claims anew is part of the new claim.

What processes left behind that were killed is removed by whoever looks next.
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
"""A claim is for 1/64 of the limit, but at most so many bytes, and at least the piece it is made for."""

FULL_S: Final = 2.0
"""When no room could be made, nobody looks again for so many seconds."""

RENEW_S: Final = ABANDONED_S / 3
"""A claim is made anew after this time, so that nobody takes it for left over."""


EMPTY_NS: Final = 60 * 10**9
"""An object's folder in which there is nothing for so long is nobody's."""


class Room:
    """How much this process may write. Thread-safe; blocking.

    Args:
        limit: Bytes for everything in the folder.
        pinned: Returns the keys of objects that must stay.
        clock: Monotonic seconds.
        draw: Uniform in [0, 1): which objects go.
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
        self._now_ns = 0  # of the file system, when the claim was made
        self._claimed_at = clock()
        self._left = 0
        self._writing = 0
        self._full_until = clock()

    def take(self, nbytes: int) -> bool:
        """Return whether ``nbytes`` may be written now; whoever got them calls :meth:`written` afterwards.

        Raises:
            OSError: The folder cannot be looked through or written to.
        """
        with self._lock:
            is_old = self._clock() - self._claimed_at > RENEW_S
            if (is_old or nbytes > self._left) and not self._claim_anew(nbytes):
                return False
            self._left -= nbytes
            self._writing += nbytes
            return True

    def written(self, nbytes: int) -> None:
        """Record that the claimed bytes were written, or given up."""
        with self._lock:
            self._writing -= nbytes

    def tidy(self) -> None:
        """Remove what killed processes left behind.

        Raises:
            OSError: The folder cannot be written to.
        """
        with self._lock:
            self._say(0)
            self._claims_of_others()

    def close(self) -> None:
        """Take the claim back. Nothing may be written any more."""
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
        """Remove folders that a process made and was killed before it put anything there."""
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
        """Return how much other processes may still write; remove what is of none that lives."""
        claims: dict[str, int] = {}
        for file in self._tree.owned_files():
            if file.owner == self._tree.owner:
                continue
            if is_abandoned(file.owner, (self._now_ns - file.modified_ns) / 1e9, self._host):
                self._tree.drop(file.name)
            else:
                claims[file.owner] = max(claims.get(file.owner, 0), file.claimed)
        return sum(claims.values())
