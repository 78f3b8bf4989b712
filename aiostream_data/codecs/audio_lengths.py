"""Compare the lengths that sound files declare with their bytes, since libsndfile ignores that the end is missing."""

from __future__ import annotations

from typing import Any, Final

from aiostream_data.errors import DecodeError

_UNKNOWN_NBYTES: Final = 0x7FFFF000
"""Programs that write to a pipe declare at least this size, since they do not know it."""

_OGG_HEADER_NBYTES: Final = 27
_OGG_LAST_PAGE: Final = 4
_OGG_FLAGS: Final = 5


def check_complete(data: bytes) -> None:
    """Raise if a file is not a sound file of a supported kind, or ends before its declared end.

    MP3 files without a Xing header declare no length.

    Raises:
        DecodeError: The file is truncated, or of another kind.
    """
    if data.startswith(b"RIFF"):
        _check_chunks(data, b"data", "little")
    elif data.startswith(b"FORM"):
        _check_chunks(data, b"SSND", "big")
    elif data.startswith(b"OggS"):
        _check_last_page(data)
    elif not data.startswith((b"fLaC", b"ID3")) and not _starts_mp3(data):
        raise DecodeError("the sound file cannot be decoded: it is not a WAV, AIFF, FLAC, Ogg or MP3 file")


def _starts_mp3(data: bytes) -> bool:
    """Return True if the bytes begin with the header of an MPEG audio frame."""
    return len(data) >= 4 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0


def _check_chunks(data: bytes, samples: bytes, order: Any) -> None:
    """Check that the chunk with the samples lies in the file."""
    at = 12
    while at + 8 <= len(data):
        nbytes = int.from_bytes(data[at + 4 : at + 8], order)
        if data[at : at + 4] == samples:
            missing = at + 8 + nbytes - len(data)
            if missing > 0 and nbytes < _UNKNOWN_NBYTES:
                raise DecodeError(f"the sound file is truncated: {missing} of {nbytes} bytes of samples are missing")
            return
        at += 8 + nbytes + nbytes % 2
    raise DecodeError("the sound file is truncated: it contains no samples")


def _check_last_page(data: bytes) -> None:
    """Check that an Ogg file ends with the page that is marked as the last one."""
    at = data.rfind(b"OggS")
    header = data[at : at + _OGG_HEADER_NBYTES]
    if len(header) == _OGG_HEADER_NBYTES and header[_OGG_FLAGS] & _OGG_LAST_PAGE:
        segments = data[at + _OGG_HEADER_NBYTES : at + _OGG_HEADER_NBYTES + header[-1]]
        if len(segments) == header[-1] and at + _OGG_HEADER_NBYTES + len(segments) + sum(segments) <= len(data):
            return
    raise DecodeError("the sound file is truncated: its last Ogg page is missing or incomplete")
