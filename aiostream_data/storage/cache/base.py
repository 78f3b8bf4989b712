"""Where pieces are kept: what a caching store asks of a folder or of memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from aiostream_data.storage.cache.spans import ByteSpan, Missing


class PieceStore(Protocol):
    """Keeps pieces of objects by key. Blocking; thread-safe. A failure to keep is never an error of the reader."""

    def pinned(self, key: str) -> AbstractContextManager[None]:
        """Let nobody in this process evict an object during the block. Does not block."""

    def read(self, key: str, wanted: ByteSpan, buffer: memoryview) -> Missing:
        """Fill ``buffer``, which stands for ``wanted``, with what is here; return what is not."""

    def write(self, key: str, span: ByteSpan, data: memoryview) -> None:
        """Keep the bytes of ``span``, which are copied, where there is room for them."""

    def close(self) -> None:
        """Release files. Nothing may be under way; idempotent."""
