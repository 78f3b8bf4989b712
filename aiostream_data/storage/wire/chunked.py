"""Decode a short chunked body (RFC 9112, section 7.1), such as the error message of a store.

The decoded text is used in error messages only. Objects with chunked bodies are fetched by an HTTP library instead.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aiostream_data.storage.wire.answer_head import MalformedAnswer

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")


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
            return Chunks(b"".join(parts), _end_of_trailer(raw, begins))
        parts.append(raw[begins : begins + nbytes])
        at = begins + nbytes + 2
        if not b"\r\n".startswith(raw[at - 2 : at]):
            raise MalformedAnswer("a chunk of the answer is longer than its declared size")
    if b"\n" in raw[at:]:
        raise MalformedAnswer("a chunk of the answer has no size")
    return Chunks(b"".join(parts), None)


def _end_of_trailer(raw: bytes, at: int) -> int | None:
    if raw.startswith(b"\r\n", at):
        return at + 2
    found = raw.find(b"\r\n\r\n", at)
    return found + 4 if found >= 0 else None
