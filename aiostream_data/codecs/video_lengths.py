"""Compare the lengths that video files declare with their bytes, since FFmpeg ignores that the end is missing."""

from __future__ import annotations

from typing import Final

from aiostream_data.errors import DecodeError

_EBML: Final = b"\x1a\x45\xdf\xa3"
_SEGMENT: Final = b"\x18\x53\x80\x67"
_BOX_HEADER_NBYTES: Final = 8
_LARGE_BOX: Final = 1
_TO_END: Final = 0


def check_complete(data: bytes) -> None:
    """Raise if an MP4, MOV, Matroska or WebM file ends before its declared end. Other files declare no length.

    Raises:
        DecodeError: The file is truncated.
    """
    missing = 0
    if data.startswith(_EBML):
        missing = _missing_in_segment(data)
    elif data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        missing = _missing_in_boxes(data)
    if missing > 0:
        raise DecodeError(f"the video cannot be decoded: it is truncated, at least {missing} bytes are missing")


def _missing_in_boxes(data: bytes) -> int:
    """Return the number of bytes that the last box of an MP4 file lacks."""
    at = 0
    while at < len(data):
        header = data[at : at + _BOX_HEADER_NBYTES]
        if len(header) < _BOX_HEADER_NBYTES:
            return _BOX_HEADER_NBYTES - len(header)
        nbytes = int.from_bytes(header[:4], "big")
        if nbytes == _TO_END:
            return 0
        if nbytes == _LARGE_BOX:
            nbytes = int.from_bytes(data[at + 8 : at + 16], "big")
        at += max(nbytes, _BOX_HEADER_NBYTES)
    return at - len(data)


def _missing_in_segment(data: bytes) -> int:
    """Return the number of bytes that the segment of a Matroska file lacks; 0 if its size is unknown, as in streams."""
    stop, nbytes = _element(data, len(_EBML))
    at = stop + nbytes
    if not data.startswith(_SEGMENT, at):
        return max(at + len(_SEGMENT) - len(data), 0)
    stop, nbytes = _element(data, at + len(_SEGMENT))
    return stop + nbytes - len(data)


def _element(data: bytes, at: int) -> tuple[int, int]:
    """Return where the size of an element ends, and the size, or 0 if it is unknown."""
    first = data[at] if at < len(data) else 0
    width = 9 - first.bit_length()
    value = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    return at + width, 0 if value == (1 << 7 * width) - 1 else value
