"""Memory as a device knows it: addresses that lead to the same bytes after their owner has let them go.

Work that was enqueued knows addresses alone. It reads and writes what is there when it *runs*, whether
or not anybody still holds the array, and memory that was let go may belong to somebody else by then.
NumPy would keep an array alive for whoever refers to it, and so hide what is looked for here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import ALIGNMENT

POISON = 0xA5
"""The byte that fills new memory, and memory that was freed."""


class Chunk:
    """One allocation.

    Attributes:
        bytes: uint8, shape (nbytes,): what is at its addresses. Holding this does not hold the allocation.
        start: Its first address.
        live: False once its owner has let it go.
        ours: Whether it was allocated here, and may be poisoned.
    """

    __slots__ = ("bytes", "live", "ours", "start")

    def __init__(self, content: NDArray[np.uint8], *, ours: bool) -> None:
        self.bytes = content
        self.start = int(content.ctypes.data)
        self.live = True
        self.ours = ours

    def holds(self, address: int) -> bool:
        return self.start <= address < self.start + self.bytes.nbytes

    def alias(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array over the same bytes as ``array``, which lies in this chunk, without holding it."""
        offset = int(array.ctypes.data) - self.start
        return np.ndarray(array.shape, array.dtype, buffer=self.bytes, offset=offset, strides=array.strides)


class AddressSpace:
    """All chunks that are allocated now. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._chunks: dict[int, Chunk] = {}

    def allocate(self, nbytes: int) -> Chunk:
        """Return ``nbytes`` of poison on an aligned address; :meth:`own` makes it somebody's."""
        content = np.full(nbytes + ALIGNMENT, POISON, np.uint8)
        skip = -content.ctypes.data % ALIGNMENT
        return Chunk(content[skip : skip + nbytes], ours=True)

    def own(self, chunk: Chunk, let_go: Callable[[Chunk], None]) -> NDArray[np.uint8]:
        """Return the array whose last reference, that of any view of it included, means letting ``chunk`` go.

        Args:
            let_go: Called then, from any thread, to :meth:`forget` the chunk.
        """
        self.add(chunk)
        # Over a memoryview, since the views of an array over an array would refer to the latter alone.
        array = np.frombuffer(chunk.bytes.data, np.uint8)
        weakref.finalize(array, let_go, chunk).atexit = False
        return array

    def add(self, chunk: Chunk) -> None:
        """Note that somebody owns ``chunk``."""
        chunk.live = True
        self._chunks[chunk.start] = chunk

    def forget(self, chunk: Chunk) -> None:
        """Note that nobody owns ``chunk`` any more."""
        chunk.live = False
        self._chunks.pop(chunk.start, None)

    def poison(self, chunk: Chunk) -> None:
        """Overwrite what was freed, unless it is the memory of somebody else."""
        if chunk.ours:
            chunk.bytes[:] = POISON

    def at(self, array: NDArray[Any]) -> Chunk | None:
        """Return the chunk that ``array`` lies in; None where it lies in memory that was not allocated here."""
        address = int(array.ctypes.data)
        return next((chunk for chunk in list(self._chunks.values()) if chunk.holds(address)), None)
