"""Parse the head of an HTTP/1.1 response: its status line and headers.

The parser is strict, because a wrong body length would corrupt the next response on the connection. Every violation of
RFC 9112 is an error. One regular expression validates the complete head, and another regular expression splits the head
into fields. The field :attr:`AnswerHead.framing` marks valid chunked responses, which an HTTP library must fetch.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

from aiostream_data._native import ordinary_head

MAX_HEAD_NBYTES: Final = 64 << 10
"""Maximum bytes of a response head. Common servers allow heads of 8 to 32 KiB."""

MAX_FIELDS: Final = 256
"""Maximum number of header fields in a response. HTTP libraries allow 100 to 128 fields."""

MAX_INTERIM: Final = 32
"""Maximum number of interim responses (1xx) to one request. Servers usually send one or two interim responses."""

Framing: TypeAlias = Literal["length", "close", "chunked"]
"""How the end of a response body is marked: by a length, by the end of the connection, or by the last chunk."""

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
    """Error for bytes that are not a valid HTTP/1.1 response, or for a response that contradicts itself."""


class AnswerHead(NamedTuple):
    """Status line and headers of a final (not interim) response.

    Attributes:
        status: HTTP status code, 200 to 999.
        headers: Header values by lower-case name; repeated headers are joined with ", ".
        framing: How the server marks the end of the body.
        length: Body length in bytes; None unless ``framing`` is "length".
        keeps_alive: True if the connection can be reused after the body has been read.
    """

    status: int
    headers: dict[str, str]
    framing: Framing
    length: int | None
    keeps_alive: bool


def end_of_head(data: bytes | bytearray, searched: int = 0, filled: int | None = None) -> int:
    """Return the offset after the empty line that ends the head, or -1 if the head is incomplete.

    Args:
        data: Received bytes.
        searched: Number of bytes that a previous call has already searched.
        filled: Number of valid bytes in ``data``, or None if all bytes are valid.
    """
    found = data.find(b"\r\n\r\n", max(0, searched - 3), len(data) if filled is None else filled)
    return found + 4 if found >= 0 else -1


def check_beginning(data: bytes) -> None:
    """Validate the beginning of an incomplete head, so that a malformed response raises an error before the timeout.

    Raises:
        MalformedAnswer: No valid head begins with these bytes.
    """
    if not (data.startswith(_BEGINNING) or _BEGINNING.startswith(data)) or data.count(b"\n") != data.count(b"\r\n"):
        raise MalformedAnswer(f"the head of the answer is malformed: {_excerpt(data)}")


def parse_head(head: bytes | bytearray) -> AnswerHead | None:
    """Parse the head of a response. Return None for an interim response (1xx), which precedes the final response.

    Args:
        head: Bytes from the status line to the empty line, including these two lines.

    Raises:
        MalformedAnswer: The head violates RFC 9112 or has too many fields.
    """
    if (found := ordinary_head(bytes(head))) is not None:
        status, headers, length = found
        return AnswerHead(status, headers, "length", length, keeps_alive=True)
    return parse_strictly(head)


def parse_strictly(head: bytes | bytearray) -> AnswerHead | None:
    """Parse a head without native code, which parses only ordinary heads. See :func:`parse_head`."""
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
            raise MalformedAnswer("the server switched to another protocol (status 101) without a request")
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
        raise MalformedAnswer(f"invalid Content-Length: {told[:40]!r}")
    if coding is not None and told is not None:
        raise MalformedAnswer("the answer has both Content-Length and Transfer-Encoding")
    if coding is not None and coding.lower() != "chunked":
        raise MalformedAnswer(f"unknown Transfer-Encoding: {coding[:40]!r}")
    if status in (204, 304):  # responses with these statuses never have a body
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
