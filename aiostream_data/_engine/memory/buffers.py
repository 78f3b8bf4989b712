"""Pool of memory for file readers: blocks, and ``bytes`` objects for shards that are records.

A block is reused after the last array that refers to it is deleted.

A new block causes a page fault for every 4 KiB written, which can take several times as long as copying the bytes from
the page cache. Memory allocated by malloc stays in the memory arenas of the threads that used it. Therefore the pool
maps blocks directly from the operating system and reuses them.

A block is an array; views of this array keep the block in memory. When any thread deletes the last view, the block
returns to the pool. The pool keeps unused blocks up to a limit, and returns other unused blocks to the operating
system.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native import BytesMemory, BytesPool, finish

GRAIN_NBYTES = 1 << 18
"""Block sizes are multiples of this number of bytes, so ranges of similar size can reuse the same blocks."""

HUGE_PAGE_NBYTES = 2 << 20
"""Size in bytes of a huge page. On Linux, blocks of at least this size start at a multiple of it."""


class MemoryBlock(NamedTuple):
    """Memory of one block: ``size`` bytes of a mapping, from byte ``start`` on."""

    mapping: mmap.mmap
    start: int
    size: int

    def array(self) -> NDArray[np.uint8]:
        """Return a new array over the block."""
        return np.frombuffer(self.mapping, np.uint8, self.size, self.start)


class BlockPool:
    """Pool of uint8 blocks and of ``bytes`` objects. Safe from any thread.

    Args:
        max_idle_nbytes: Maximum total size of unused blocks in the pool, in bytes. Unused objects may take as much.
    """

    def __init__(self, max_idle_nbytes: int) -> None:
        self._max_idle_nbytes = max_idle_nbytes
        # Re-entrant, because a garbage collection inside the locked region may return another block.
        self._lock = threading.RLock()
        self._idle: dict[int, list[MemoryBlock]] = {}
        self._idle_nbytes = 0
        self._lent: dict[int, tuple[weakref.ref[NDArray[np.uint8]], MemoryBlock]] = {}
        self._objects = BytesPool(max_idle_nbytes)
        self._closed = False

    @property
    def idle_nbytes(self) -> int:
        """Total size of unused blocks in the pool, in bytes."""
        return self._idle_nbytes

    def lend(self, nbytes: int) -> NDArray[np.uint8]:
        """Return an uninitialized array of ``nbytes`` bytes.

        The pool reuses the array's block after the last view of the array is deleted.
        """
        size = max(1, -(-nbytes // GRAIN_NBYTES)) * GRAIN_NBYTES
        with self._lock:
            block = self._taken(size)
        if block is None:
            block = _mapped(size)
        array = block.array()
        number = id(array)
        # An interrupt (Ctrl-C) in a callback would be lost.
        back = weakref.ref(array, partial(finish, partial(self._come_back, number)))
        with self._lock:
            self._lent[number] = (back, block)
        return array[:nbytes]

    def lend_objects(self, sizes: Iterable[int]) -> list[BytesMemory]:
        """Return uninitialized memory for ``bytes`` objects of these sizes.

        The pool reuses an object when nobody else refers to it.
        """
        with self._lock:
            return self._objects.memory(sizes)

    def close(self) -> None:
        """Return unused blocks to the operating system.

        Blocks in use are returned to the operating system when their last view is deleted.
        """
        with self._lock:
            self._closed = True
            self._objects.close()
            self._idle.clear()
            self._idle_nbytes = 0

    def _come_back(self, number: int) -> None:
        with self._lock:
            lent = self._lent.pop(number, None)
            if lent is None:  # an interrupt ended an earlier call, and with it this block
                return
            block = lent[1]
            size = block.size
            self._make_room(size)
            if not self._closed and self.idle_nbytes + size <= self._max_idle_nbytes:
                self._idle.setdefault(size, []).append(block)
                self._idle_nbytes += size

    def _make_room(self, size: int) -> None:
        """Return unused blocks of other sizes to the system until a block of ``size`` bytes fits into the pool.

        The sizes of requested byte ranges change while a store is read, so blocks of old sizes would never be reused.
        """
        if size > self._max_idle_nbytes:
            return
        for other in list(self._idle):
            while self._idle_nbytes + size > self._max_idle_nbytes:
                if other == size or self._taken(other) is None:
                    break

    def _taken(self, size: int) -> MemoryBlock | None:
        """Take an unused block of ``size`` bytes out of the pool. Return None if there is none."""
        waiting = self._idle.get(size)
        if not waiting:
            return None
        self._idle_nbytes -= size
        return waiting.pop()


def _mapped(nbytes: int) -> MemoryBlock:
    """Map private memory, because page faults of shared memory take twice as long.

    Large blocks ask for huge pages: filling new memory of 4 KiB pages takes three times as long. Only whole and aligned
    huge pages count, so the mapping is longer than the block; nobody touches the rest, which uses no memory.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):
        return MemoryBlock(mmap.mmap(-1, nbytes), 0, nbytes)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if nbytes < HUGE_PAGE_NBYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return MemoryBlock(mmap.mmap(-1, nbytes, flags=flags), 0, nbytes)
    mapping = mmap.mmap(-1, nbytes + HUGE_PAGE_NBYTES, flags=flags)
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    start = -address % HUGE_PAGE_NBYTES
    with suppress(OSError):  # the kernel has no huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE, start, nbytes - nbytes % HUGE_PAGE_NBYTES)
    return MemoryBlock(mapping, start, nbytes)
