"""Decompressor and compressor of the snappy framing format: chunks of at most 64 KiB, each with a CRC-32C.

How this works. A chunk is decompressed once it has arrived completely, and is returned once its checksum matches. So
the output before damage does not depend on how the compressed bytes arrive, and every returned byte was checked.

Readers may skip chunks of the types 0x80 to 0xfd, but no writer is known that makes such chunks. They are refused:
otherwise a single wrong bit in the type of a chunk would lose the chunk without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aiostream_data import _native
from aiostream_data.errors import CorruptRecordError, MissingExtraError

IDENTIFIER: Final = b"\xff\x06\x00\x00sNaPpY"
"""First chunk of a stream. The chunk may occur again, as in streams that were joined."""

MOST_OUTPUT_NBYTES: Final = 64 << 10
"""Largest number of decompressed bytes of one chunk."""

_COMPRESSED: Final = 0x00
_UNCOMPRESSED: Final = 0x01
_PADDING: Final = 0xFE
_IDENTIFIER: Final = 0xFF
_HEADER_NBYTES: Final = 4
_CHECKSUM_NBYTES: Final = 4
_MOST_BODY_NBYTES: Final = _CHECKSUM_NBYTES + 32 + MOST_OUTPUT_NBYTES + MOST_OUTPUT_NBYTES // 6
"""Largest body of a chunk: the checksum, and what snappy makes of 64 KiB that do not compress."""


def may_begin_snappy(first_bytes: bytes) -> bool:
    """Return True if a snappy stream can begin with ``first_bytes``."""
    return first_bytes[: len(IDENTIFIER)] == IDENTIFIER[: len(first_bytes)]


def chunk_ends(stream: bytes) -> set[int]:
    """Return the offsets behind each chunk of a valid stream. A stream that is cut there is valid, as it has no end."""
    ends, at = set[int](), 0
    while at < len(stream):
        at += _HEADER_NBYTES + _body_nbytes(stream[at : at + _HEADER_NBYTES])
        ends.add(at)
    return ends


class _ChunkError(ValueError):
    """A chunk is damaged."""


class SnappyChunks:
    """Decompressor for any number of streams, one directly after another."""

    held_nbytes = 4 * MOST_OUTPUT_NBYTES
    """A chunk, a copy of its body, and its output."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._snappy = _snappy()
        self._arrived = bytearray()  # a chunk that is not complete
        self._skipped = 0  # bytes still to come of a chunk of padding
        self._has_begun = False
        self._produced = 0

    def feed(self, data: memoryview) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            if self._skipped:
                nbytes = min(self._skipped, len(data) - at)
                self._skipped -= nbytes
            else:
                nbytes = min(self._missing_nbytes(), len(data) - at)
                self._arrived += data[at : at + nbytes]
                out = self._complete()
                self._produced += len(out)
                if out:
                    yield out
            at += nbytes

    def finish(self) -> None:
        if self._arrived or self._skipped or not self._has_begun:
            raise self._corrupt("the snappy stream is cut short")

    def discard(self) -> None:
        self._arrived.clear()

    def _missing_nbytes(self) -> int:
        """Return the number of bytes to the end of the header, or else to the end of the body."""
        if len(self._arrived) < _HEADER_NBYTES:
            return _HEADER_NBYTES - len(self._arrived)
        return _HEADER_NBYTES + _body_nbytes(self._arrived) - len(self._arrived)

    def _complete(self) -> bytes:
        """Check what has arrived of a chunk. Return its output if it is complete, or else nothing."""
        chunk = self._arrived
        if not self._has_begun and not may_begin_snappy(bytes(chunk)):
            raise self._corrupt("the snappy stream is damaged (it begins with other bytes)")
        try:
            _check_start(chunk)
            if len(chunk) < _HEADER_NBYTES:
                return b""
            if chunk[0] == _PADDING:
                self._skipped = _body_nbytes(chunk)
                chunk.clear()
                return b""
            if self._missing_nbytes():
                return b""
            out = self._output(chunk[0], bytes(chunk[_HEADER_NBYTES:]))
        except (_ChunkError, self._snappy.DecompressionError) as error:
            raise self._corrupt(f"the snappy stream is damaged ({error})") from None
        self._has_begun = True
        chunk.clear()
        return out

    def _output(self, kind: int, body: bytes) -> bytes:
        """Return the decompressed bytes of a chunk, which match its checksum."""
        if kind == _IDENTIFIER:
            if body != IDENTIFIER[_HEADER_NBYTES:]:
                raise _ChunkError("a stream identifier is invalid")
            return b""
        checksum, out = int.from_bytes(body[:_CHECKSUM_NBYTES], "little"), body[_CHECKSUM_NBYTES:]
        if kind == _COMPRESSED:
            declared = self._snappy.snappy.decompress_raw_len(out)
            _check_output(declared)
            out = bytes(self._snappy.snappy.decompress_raw(out))
        _check_output(len(out))
        if _native.masked_crc32c(out) != checksum:
            raise _ChunkError("the checksum of a chunk does not match")
        return out

    def _corrupt(self, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self._url, self._produced, reason)


def _check_start(chunk: bytearray) -> None:
    """Check the type of a chunk, and its length once it has arrived."""
    kind = chunk[0]
    if _UNCOMPRESSED < kind < _PADDING:
        raise _ChunkError(f"a chunk has the reserved type 0x{kind:02x}")
    if len(chunk) < _HEADER_NBYTES or kind == _PADDING:
        return
    nbytes = _body_nbytes(chunk)
    if kind == _IDENTIFIER:
        if nbytes != len(IDENTIFIER) - _HEADER_NBYTES:
            raise _ChunkError("a stream identifier is invalid")
    elif not _CHECKSUM_NBYTES <= nbytes <= _MOST_BODY_NBYTES:
        raise _ChunkError(f"a chunk declares {nbytes} bytes, and {_CHECKSUM_NBYTES} to {_MOST_BODY_NBYTES} are valid")


def _check_output(nbytes: int) -> None:
    if nbytes > MOST_OUTPUT_NBYTES:
        raise _ChunkError(f"a chunk declares {nbytes} decompressed bytes, and at most {MOST_OUTPUT_NBYTES} are valid")


def _body_nbytes(chunk: bytes | bytearray) -> int:
    return int.from_bytes(chunk[1:_HEADER_NBYTES], "little")


class SnappyCompressor:
    """Compressor of one stream."""

    def __init__(self) -> None:
        self._snappy = _snappy().snappy
        self._rest = bytearray()
        self._begun = IDENTIFIER

    def compress(self, data: bytes, /) -> bytes:
        self._rest += data
        complete = len(self._rest) // MOST_OUTPUT_NBYTES * MOST_OUTPUT_NBYTES
        return self._take(complete)

    def flush(self) -> bytes:
        return self._take(len(self._rest))

    def _take(self, nbytes: int) -> bytes:
        begun, self._begun = self._begun, b""
        taken = bytes(self._rest[:nbytes])
        del self._rest[:nbytes]
        parts = (taken[at : at + MOST_OUTPUT_NBYTES] for at in range(0, nbytes, MOST_OUTPUT_NBYTES))
        return begun + b"".join(map(self._chunk, parts))

    def _chunk(self, part: bytes) -> bytes:
        kind, body = _COMPRESSED, bytes(self._snappy.compress_raw(part))
        if len(body) >= len(part):
            kind, body = _UNCOMPRESSED, part
        nbytes = _CHECKSUM_NBYTES + len(body)
        checksum = _native.masked_crc32c(part).to_bytes(_CHECKSUM_NBYTES, "little")
        return bytes([kind]) + nbytes.to_bytes(_HEADER_NBYTES - 1, "little") + checksum + body


def _snappy() -> Any:
    try:
        import cramjam
    except ImportError as error:
        raise MissingExtraError("snappy streams need the extra: pip install 'aiostream-data[snappy]'") from error
    return cramjam
