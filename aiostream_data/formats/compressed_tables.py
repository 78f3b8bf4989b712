"""Name the actual kind of a file with another format than a table reader expects, for error messages."""

from __future__ import annotations

from typing import Final

from aiostream_data.codecs.compression import detect
from aiostream_data.codecs.file_kinds import START_NBYTES, kind_of

MARKS_NBYTES: Final = START_NBYTES
"""Number of first bytes of a file that show its kind, and its compression."""

_COMPRESSION_NBYTES: Final = 64
"""Number of first bytes of a file that show its compression."""


def compressed_kind(start: bytes) -> str | None:
    """Return what is wrong with a compressed file, or None if its first bytes show no compression.

    Formats with row groups read ranges of a file, which a compressed stream does not have.
    """
    compression = detect(start[:_COMPRESSION_NBYTES])
    if not compression:
        return None
    return f"this is a {compression} stream, and its row groups cannot be found in it. Decompress the file"


def other_kind(start: bytes) -> str:
    """Return what to do about a file of another format, as the end of a message."""
    if not start:
        return "The file is empty. Write the file again, or remove it"
    kind = kind_of(start)
    if kind is None:
        return "Check the format of the file, or let open_any() find it"
    return f"This is {kind.name}: {kind.cure}"
