"""Lend blocks of memory to readers, and lend them again when nothing looks at them any more.

A fresh block costs a page fault for every 4 KiB that is written, about half of what reading costs, and
blocks from malloc stay in the arenas of the threads that touched them. So blocks come straight from
the system, one mapping each, and are used again.

A block is an array; whatever is cut out of it keeps it alive. When the last such view is gone the
block comes back, from whichever thread that happened on. Blocks that are not lent are kept up to a
limit and given back to the system beyond it.
"""

from __future__ import annotations

import mmap
import threading
import weakref

import numpy as np
from numpy.typing import NDArray

GRAIN_NBYTES = 1 << 18
"""Blocks are multiples of this, so that blocks for ranges of nearly one size fit each other."""


class BlockPool:
    """Blocks of uint8. Safe to use from any thread.

    Args:
        max_idle_nbytes: Most bytes kept while nobody has them.
    """

    def __init__(self, max_idle_nbytes: int) -> None:
        self._max_idle_nbytes = max_idle_nbytes
        # Re-entrant: a garbage collection inside the locked region may bring another block back.
        self._lock = threading.RLock()
        self._idle: dict[int, list[mmap.mmap]] = {}
        self._lent: dict[int, tuple[weakref.ref[NDArray[np.uint8]], mmap.mmap]] = {}
        self.idle_nbytes = 0
        self._closed = False

    def lend(self, nbytes: int) -> NDArray[np.uint8]:
        """Return ``nbytes`` bytes with undefined content. The borrower drops them when done."""
        size = max(1, -(-nbytes // GRAIN_NBYTES)) * GRAIN_NBYTES
        with self._lock:
            waiting = self._idle.get(size)
            block = waiting.pop() if waiting else None
            if block is not None:
                self.idle_nbytes -= size
        if block is None:
            block = mmap.mmap(-1, size)
        array = np.frombuffer(block, np.uint8)
        number = id(array)
        back = weakref.ref(array, lambda _: self._come_back(number))
        with self._lock:
            self._lent[number] = (back, block)
        return array[:nbytes]

    def close(self) -> None:
        """Give idle blocks back to the system; those still lent go back when they are dropped."""
        with self._lock:
            self._closed = True
            self._idle.clear()
            self.idle_nbytes = 0

    def _come_back(self, number: int) -> None:
        with self._lock:
            _, block = self._lent.pop(number)
            size = len(block)
            self._make_room(size)
            if not self._closed and self.idle_nbytes + size <= self._max_idle_nbytes:
                self._idle.setdefault(size, []).append(block)
                self.idle_nbytes += size

    def _make_room(self, size: int) -> None:
        """Give idle blocks of other sizes back to the system, as far as one of this size needs their room.

        Ranges become larger or smaller while a store is read, and blocks of the old size would not be used again.
        """
        if size > self._max_idle_nbytes:
            return
        for other in list(self._idle):
            waiting = self._idle.get(other, [])
            while other != size and waiting and self.idle_nbytes + size > self._max_idle_nbytes:
                waiting.pop()
                self.idle_nbytes -= other
            if not waiting:
                self._idle.pop(other, None)
