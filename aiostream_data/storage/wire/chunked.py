"""Take apart a short body that came in chunks (RFC 9112, section 7.1): what a store says of an error often does.

Objects that come in chunks are left to a full client; what is here is in memory already, and not trusted for more than
words in a message.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aiostream_data.storage.wire.answer_head import MalformedAnswer

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")


class Chunks(NamedTuple):
    """What chunks say, as far as they have come.

    Attributes:
        body: Their bytes, joined.
        end: Where the last of them ends, its trailer included; None as long as there is more to come.
    """

    body: bytes
    end: int | None


def read_chunks(raw: bytes) -> Chunks:
    """Return what is in the chunks with which ``raw`` begins.

    Raises:
        MalformedAnswer: They are none.
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
            raise MalformedAnswer("a chunk of the answer is longer than it says")
    if b"\n" in raw[at:]:
        raise MalformedAnswer("a chunk of the answer does not say how long it is")
    return Chunks(b"".join(parts), None)


def _end_of_trailer(raw: bytes, at: int) -> int | None:
    if raw.startswith(b"\r\n", at):
        return at + 2
    found = raw.find(b"\r\n\r\n", at)
    return found + 4 if found >= 0 else None
