"""Read the head of an HTTP/1.1 answer: strictly, because where its body ends decides what the next answer is.

How this works. One regular expression says whether the whole head is well formed, another takes it apart; both run
in C. What RFC 9112 calls an error is one here, and nothing is guessed. Answers that are correct and yet not of the
plain kind (bodies in chunks) are told by :attr:`AnswerHead.framing`, for a full client to fetch.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

MAX_HEAD_NBYTES: Final = 64 << 10
"""A longer head is refused; servers allow 8 to 32 KiB."""

MAX_FIELDS: Final = 256
"""More header fields are refused; full clients allow 100 to 128."""

MAX_INTERIM: Final = 32
"""More interim answers (1xx) to one request are refused; one or two are usual."""

Framing: TypeAlias = Literal["length", "close", "chunked"]
"""How the end of a body is told: by its length, by the end of the connection, or in chunks."""

_BEGINNING: Final = b"HTTP/1."
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
_WHOLE: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: " + _VALUE + rb")?\r\n((?:" + _TOKEN + rb":" + _VALUE + rb"\r\n)*)\r\n"
)
_FIELD: Final = re.compile(r"([^:]+):[ \t]*([^\r\n]*)\r\n")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_ONCE: Final = frozenset({"content-length", "transfer-encoding", "content-range", "content-encoding"})


class MalformedAnswer(ValueError):
    """What came is no HTTP/1.1 answer, or tells two things at once."""


class AnswerHead(NamedTuple):
    """The head of a final answer.

    Attributes:
        status: 200 to 999.
        headers: By name in lower case; several of one name joined by ", ".
        framing: How the body's end is told.
        length: Bytes of the body; None unless ``framing`` is "length".
        keeps_alive: Whether the connection may be used again, once the body has been read.
    """

    status: int
    headers: dict[str, str]
    framing: Framing
    length: int | None
    keeps_alive: bool


def end_of_head(data: bytes | bytearray, searched: int = 0, filled: int | None = None) -> int:
    """Return the offset behind the empty line that ends the head, or -1.

    Args:
        searched: Number of bytes that were searched before.
        filled: Number of valid bytes in ``data``; all of them if None.
    """
    found = data.find(b"\r\n\r\n", max(0, searched - 3), len(data) if filled is None else filled)
    return found + 4 if found >= 0 else -1


def check_beginning(data: bytes) -> None:
    """Look at a head that is not complete: waiting for the rest of one that is malformed would last for a time-out.

    Raises:
        MalformedAnswer: It cannot become a head any more.
    """
    if not (data.startswith(_BEGINNING) or _BEGINNING.startswith(data)) or data.count(b"\n") != data.count(b"\r\n"):
        raise MalformedAnswer(f"the head of the answer is malformed: {_excerpt(data)}")


def parse_head(head: bytes | bytearray) -> AnswerHead | None:
    """Return what a head says of the answer to a GET; None for an interim answer (1xx), which another follows.

    Args:
        head: From the status line to the empty line, both included.

    Raises:
        MalformedAnswer: It is not well formed.
    """
    whole = _WHOLE.fullmatch(head)
    if whole is None:
        raise MalformedAnswer(f"the head of the answer is malformed: {_excerpt(head)}")
    if whole[3].count(b"\n") > MAX_FIELDS:
        raise MalformedAnswer(f"the head of the answer has more than {MAX_FIELDS} fields")
    status = int(whole[2])
    headers = _headers(whole[3])
    framing, length = _framing(status, headers)
    if status < 200:
        if status == 101:
            raise MalformedAnswer("the server switched to another protocol, which nobody had asked for")
        return None
    return AnswerHead(status, headers, framing, length, _keeps_alive(whole[1] == b"1", headers))


def _headers(block: bytes) -> dict[str, str]:
    fields = _FIELD.findall(block.decode("latin-1"))
    headers = {name.lower(): value for name, value in fields}
    if len(headers) == len(fields) and b" \r" not in block and b"\t\r" not in block:
        return headers
    return _merged(fields)


def _merged(fields: list[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.lower(), raw_value.rstrip(" \t")
        before = headers.get(name)
        if before is None:
            headers[name] = value
        elif name not in _ONCE:
            headers[name] = f"{before}, {value}"
        elif name != "content-length" or before != value:
            raise MalformedAnswer(f"the answer has the header {name} twice")
    return headers


def _framing(status: int, headers: dict[str, str]) -> tuple[Framing, int | None]:
    told = headers.get("content-length")
    coding = headers.get("transfer-encoding")
    if told is not None and _LENGTH.fullmatch(told) is None:
        raise MalformedAnswer(f"the length of the answer is no number: {told[:40]!r}")
    if coding is not None and told is not None:
        raise MalformedAnswer("the answer has both a length and a transfer coding")
    if coding is not None and coding.lower() != "chunked":
        raise MalformedAnswer(f"the answer has a transfer coding that is not known: {coding[:40]!r}")
    if status in (204, 304):  # which have no body, whatever else they say
        return "length", 0
    if coding is not None:
        return "chunked", None
    return ("close", None) if told is None else ("length", int(told))


def _keeps_alive(is_1_1: bool, headers: dict[str, str]) -> bool:
    told = headers.get("connection")
    if told is None or told == "keep-alive":
        return is_1_1 or told is not None
    options = {option.strip().lower() for option in told.split(",")}
    return "close" not in options and (is_1_1 or "keep-alive" in options)


def _excerpt(head: bytes | bytearray) -> str:
    return repr(bytes(head[:60]))[1:]
