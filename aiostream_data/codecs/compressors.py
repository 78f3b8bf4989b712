"""Incremental compression, with deterministic output."""

from __future__ import annotations

import zlib
from typing import Protocol

from aiostream_data.codecs.compression import Compression, zstandard_library
from aiostream_data.codecs.deflate import WINDOW_BITS
from aiostream_data.codecs.library_streams import new_compressor
from aiostream_data.codecs.snappy_chunks import SnappyCompressor


class Compressor(Protocol):
    """Compressor of one stream."""

    def compress(self, data: bytes, /) -> bytes:
        """Compress ``data`` and return the output that is ready. The output may be empty."""

    def flush(self) -> bytes:
        """End the compressed stream and return its last bytes."""


def compressor(name: Compression) -> Compressor:
    """Create a compressor for a new stream. The compressor's output is deterministic and contains no timestamps.

    Raises:
        MissingExtraError: The package for this compression is not installed.
    """
    if name == "zstd":
        made: Compressor = zstandard_library().ZstdCompressor(write_checksum=True).compressobj()
        return made
    if name == "gzip" or name == "zlib":
        return zlib.compressobj(wbits=WINDOW_BITS[name])
    if name == "snappy":
        return SnappyCompressor()
    library: Compressor = new_compressor(name) if name else _PlainCompressor()
    return library


class _PlainCompressor:
    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""
