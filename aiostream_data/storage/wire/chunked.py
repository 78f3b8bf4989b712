"""Decode chunked bodies (RFC 9112, section 7.1): error messages of a store, and documents such as pages of a listing.

Objects with chunked bodies are fetched by an HTTP library instead.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aiostream_data.storage.wire.answer_head import MalformedAnswer

MAX_LINE_NBYTES: Final = 64 << 10
"""Maximum bytes of the line with the size of a chunk, and of the trailer after the last chunk."""

FIRST_NBYTES: Final = 128 << 10
"""Initial size in bytes of the buffer for a chunked body."""

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")


class OversizedBody(ValueError):
    """Error for a response body above the limit of its request."""

    def __init__(self, most_nbytes: int) -> None:
        super().__init__(f"the answer is larger than {most_nbytes} bytes")


class Chunks(NamedTuple):
    """Decoded chunks of a complete or partial body.

    Attributes:
        body: Concatenated data of all received chunks.
        end: Offset in the raw bytes after the last chunk and its trailer, or None if the body is incomplete.
    """

    body: bytes
    end: int | None


def read_chunks(raw: bytes) -> Chunks:
    """Decode the chunks at the beginning of ``raw``, which may be incomplete.

    Raises:
        MalformedAnswer: The bytes are not valid chunks.
    """
    parts: list[bytes] = []
    at = 0
    while (found := _SIZE.match(raw, at)) is not None:
        begins, nbytes = found.end(), int(found[1], 16)
        if nbytes == 0:
            return Chunks(b"".join(parts), _end_of_trailer(raw, begins, len(raw)))
        parts.append(raw[begins : begins + nbytes])
        at = begins + nbytes + 2
        if not b"\r\n".startswith(raw[at - 2 : at]):
            raise _too_long()
    if b"\n" in raw[at:]:
        raise _without_size()
    return Chunks(b"".join(parts), None)


class ChunkedBody:
    """Buffer for one chunked body, which grows while the body arrives. See :class:`.exchange.BodySink`.

    Args:
        most_nbytes: Maximum size of the body, including the framing of its chunks.
    """

    def __init__(self, most_nbytes: int) -> None:
        self._most_nbytes = most_nbytes
        self._raw = bytearray(FIRST_NBYTES)
        self._filled = 0
        self._at = 0  # the first byte that does not belong to a complete chunk
        self._parts: list[tuple[int, int]] = []
        self._end: int | None = None

    @property
    def is_complete(self) -> bool:
        """True if the last chunk and its trailer have arrived."""
        return self._end is not None

    @property
    def beyond(self) -> int:
        """Number of bytes that arrived after the end of the body."""
        return 0 if self._end is None else self._filled - self._end

    def room(self) -> memoryview:
        """Return a buffer for the next bytes."""
        if self._filled == len(self._raw):
            larger = bytearray(2 * len(self._raw))  # not resized: the loop may hold a view of it
            larger[: self._filled] = self._raw
            self._raw = larger
        return memoryview(self._raw)[self._filled :]

    def took(self, nbytes: int) -> None:
        """Decode the next ``nbytes`` bytes, which are at the beginning of the last :meth:`room`.

        Raises:
            MalformedAnswer: The bytes are not valid chunks.
            OversizedBody: The body exceeds its limit.
        """
        self._filled += nbytes
        if self._filled > self._most_nbytes:
            raise OversizedBody(self._most_nbytes)
        while self._end is None and self._take_chunk():
            pass

    def content(self) -> bytes:
        """Return the data of all complete chunks."""
        raw = memoryview(self._raw)
        return b"".join([raw[begins:stops] for begins, stops in self._parts])

    def _take_chunk(self) -> bool:
        """Decode the next chunk. Return False if its rest has not arrived."""
        raw, at, filled = self._raw, self._at, self._filled
        found = _SIZE.match(raw, at, filled)
        if found is None:
            if filled - at > MAX_LINE_NBYTES or raw.find(b"\n", at, filled) >= 0:
                raise _without_size()
            return False
        begins, nbytes = found.end(), int(found[1], 16)
        if nbytes == 0:
            self._end = _end_of_trailer(raw, begins, filled)
            if self._end is None and filled - begins > MAX_LINE_NBYTES:
                raise MalformedAnswer(f"the trailer of the answer is longer than {MAX_LINE_NBYTES} bytes")
            return False
        stops = begins + nbytes
        if filled < stops + 2:
            return False
        if raw[stops : stops + 2] != b"\r\n":
            raise _too_long()
        self._parts.append((begins, stops))
        self._at = stops + 2
        return True


def _end_of_trailer(raw: bytes | bytearray, at: int, filled: int) -> int | None:
    if raw[at : min(at + 2, filled)] == b"\r\n":
        return at + 2
    found = raw.find(b"\r\n\r\n", at, filled)
    return found + 4 if found >= 0 else None


def _too_long() -> MalformedAnswer:
    return MalformedAnswer("a chunk of the answer is longer than its declared size")


def _without_size() -> MalformedAnswer:
    return MalformedAnswer("a chunk of the answer has no size")
