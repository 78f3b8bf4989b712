"""HTTP requests and responses as values. This module parses and formats message heads; it sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

from aiostream_data.testing.object_api.objects import Slice

HEAD_LIMIT_NBYTES: Final = 64 << 10
_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Request:
    """Head of a request.

    Attributes:
        method: Request method, such as ``GET``.
        path: URL path as received, still percent-encoded.
        query: Query string as received, still percent-encoded, without the question mark.
        params: Decoded names and values of the query; the last value of a repeated name wins.
        headers: Request headers with names in lower case; repeated values are joined by commas.
    """

    method: str
    path: str
    query: str
    params: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def body_nbytes(self) -> int:
        """Number of body bytes that follow the request head."""
        told = self.headers.get("content-length", "0")
        return int(told) if told.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Answer:
    """Correct response to a request.

    Attributes:
        status: HTTP status.
        headers: Response headers without Content-Length, which is computed from the body.
        body: Response body: bytes, or a slice of a stored object.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | Slice = b""

    @property
    def nbytes(self) -> int:
        """Length of the response body in bytes."""
        return len(self.body) if isinstance(self.body, bytes) else self.body.nbytes


def parse_request(head: bytes) -> Request:
    """Parse an HTTP request head, without its final empty line.

    Raises:
        ValueError: The bytes are not an HTTP/1.1 request.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise ValueError(f"unknown version {version[:20]!r}")
    path, _, query = target.partition("?")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"a header without a colon: {line[:40]!r}")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return Request(method, path, query, parse_query(query) if query else {}, headers)


def parse_query(query: str) -> dict[str, str]:
    """Parse a query string into decoded names and values; a plus sign means a space, as in HTML forms."""
    found = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        found[unquote(name.replace("+", " "))] = unquote(value.replace("+", " "))
    return found


def write_head(status: int, headers: list[tuple[str, str]]) -> bytes:
    """Format an HTTP status line and headers, with the final empty line."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\n{lines}\r\n".encode("latin-1", "replace")


def http_date(seconds: float) -> str:
    """Format a Unix time as an HTTP date."""
    return formatdate(seconds, usegmt=True)
