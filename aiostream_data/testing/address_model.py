"""Model of device memory: an address stays readable after its owner has freed the memory.

Enqueued work refers to addresses only. It reads and writes the bytes at an address when it *runs*, even if the memory
was freed or reused. A plain NumPy reference would keep the array alive and hide use-after-free errors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import ALIGNMENT

POISON = 0xA5
"""Byte that fills newly allocated and freed memory."""


class Chunk:
    """One memory allocation.

    Attributes:
        bytes: Content of the chunk, uint8 of shape (nbytes,). A reference to it does not own the allocation.
        start: First address of the chunk.
        live: False after the owner has freed the chunk.
        ours: True if this model allocated the memory and may poison it.
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
        """Return a non-owning array over the same bytes as ``array``, which must lie in this chunk."""
        offset = int(array.ctypes.data) - self.start
        return np.ndarray(array.shape, array.dtype, buffer=self.bytes, offset=offset, strides=array.strides)


class AddressSpace:
    """All currently allocated chunks. Not thread-safe: the owner must hold a lock."""

    def __init__(self) -> None:
        self._chunks: dict[int, Chunk] = {}

    def allocate(self, nbytes: int) -> Chunk:
        """Allocate ``nbytes`` of poisoned memory at an aligned address; call :meth:`own` to assign an owner."""
        content = np.full(nbytes + ALIGNMENT, POISON, np.uint8)
        skip = -content.ctypes.data % ALIGNMENT
        return Chunk(content[skip : skip + nbytes], ours=True)

    def own(self, chunk: Chunk, let_go: Callable[[Chunk], None]) -> NDArray[np.uint8]:
        """Return an array that owns ``chunk``: dropping the last reference to it and its views frees the chunk.

        Args:
            let_go: Called on any thread when the array is dropped; it must :meth:`forget` the chunk.
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
        """Remove ``chunk`` after its owner has freed it."""
        chunk.live = False
        self._chunks.pop(chunk.start, None)

    def poison(self, chunk: Chunk) -> None:
        """Overwrite a freed chunk, unless the memory is owned elsewhere."""
        if chunk.ours:
            chunk.bytes[:] = POISON

    def at(self, array: NDArray[Any]) -> Chunk | None:
        """Return the chunk that contains ``array``, or None if this model did not allocate the memory."""
        address = int(array.ctypes.data)
        return next((chunk for chunk in list(self._chunks.values()) if chunk.holds(address)), None)
