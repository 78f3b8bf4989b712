"""Name the compression of a file whose row groups were expected, for error messages."""

from __future__ import annotations

from typing import Final

from aiostream_data.codecs.compression import detect

MARKS_NBYTES: Final = 64
"""Number of first bytes of a file that show its compression."""


def compressed_kind(start: bytes) -> str | None:
    """Return what is wrong with a compressed file, or None if its first bytes show no compression.

    Formats with row groups read ranges of a file, which a compressed stream does not have.
    """
    compression = detect(start)
    if not compression:
        return None
    return f"this is a {compression} stream, and its row groups cannot be found in it. Decompress the file"
