"""Interface of the storage for cached pieces of objects, which is a disk folder or process memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from aiostream_data.storage.cache.spans import ByteSpan, Missing


class PieceStore(Protocol):
    """Storage for pieces (byte ranges) of objects, addressed by cache key. Blocking and thread-safe.

    If a piece cannot be stored, the piece is dropped, and the read that fetched it still succeeds.
    """

    def pinned(self, key: str) -> AbstractContextManager[None]:
        """Return a context manager that protects the object from eviction by this process. Never blocks."""

    def read(self, key: str, wanted: ByteSpan, buffer: memoryview) -> Missing:
        """Copy the cached bytes of ``wanted`` into ``buffer`` and return the byte ranges that are not cached.

        Args:
            key: Cache key of the object.
            wanted: Byte range to read.
            buffer: Destination of ``wanted``, with the same length.
        """

    def write(self, key: str, span: ByteSpan, data: memoryview) -> None:
        """Store a copy of ``data``, the bytes of the range ``span``, if the cache has room."""

    def close(self) -> None:
        """Close open files. No other call on this storage may be in progress. Idempotent."""
