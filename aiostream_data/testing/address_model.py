"""Model of device memory: the bytes at an address stay readable after the memory's owner has freed it.

Enqueued device work refers to memory by address only. Enqueued work reads and writes the bytes at an address when it
*runs*, even if the memory was freed or reused. A NumPy reference instead of an address would keep the array alive and
hide use-after-free errors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import ALIGNMENT

POISON = 0xA5
"""Value of every byte in newly allocated and freed memory."""


class Chunk:
    """One memory allocation.

    Attributes:
        bytes: Content of this memory chunk, uint8 of shape (nbytes,). A reference to this array does not own the
            allocation.
        start: First address of this memory chunk.
        live: True until the owner frees this memory chunk.
        ours: True if this model allocated the memory and may overwrite it with the poison byte.
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
        """Return a non-owning array over the same bytes as ``array``, which must lie in this memory chunk."""
        offset = int(array.ctypes.data) - self.start
        return np.ndarray(array.shape, array.dtype, buffer=self.bytes, offset=offset, strides=array.strides)


class AddressSpace:
    """All currently allocated chunks. This class is not thread-safe: the owner must hold a lock around every call."""

    def __init__(self) -> None:
        self._chunks: dict[int, Chunk] = {}

    def allocate(self, nbytes: int) -> Chunk:
        """Allocate ``nbytes`` bytes at an aligned address and fill them with the poison byte; see also :meth:`own`."""
        content = np.full(nbytes + ALIGNMENT, POISON, np.uint8)
        skip = -content.ctypes.data % ALIGNMENT
        return Chunk(content[skip : skip + nbytes], ours=True)

    def own(self, chunk: Chunk, let_go: Callable[[Chunk], None]) -> NDArray[np.uint8]:
        """Return an array that owns ``chunk``: deleting the last reference to the array and its views frees the chunk.

        Args:
            let_go: Function that is called on any thread when the array is deleted; it must call :meth:`forget`.
        """
        self.add(chunk)
        # Wrap a memoryview: views of an array over another array would reference only the inner array.
        array = np.frombuffer(chunk.bytes.data, np.uint8)
        weakref.finalize(array, let_go, chunk).atexit = False
        return array

    def add(self, chunk: Chunk) -> None:
        """Register ``chunk`` as owned."""
        chunk.live = True
        self._chunks[chunk.start] = chunk

    def forget(self, chunk: Chunk) -> None:
        """Remove ``chunk`` from the model after its owner has freed it."""
        chunk.live = False
        self._chunks.pop(chunk.start, None)

    def poison(self, chunk: Chunk) -> None:
        """Fill a freed chunk with the poison byte if this model allocated its memory."""
        if chunk.ours:
            chunk.bytes[:] = POISON

    def at(self, array: NDArray[Any]) -> Chunk | None:
        """Return the memory chunk that contains ``array``, or None if no chunk of this model contains it."""
        address = int(array.ctypes.data)
        return next((chunk for chunk in list(self._chunks.values()) if chunk.holds(address)), None)
