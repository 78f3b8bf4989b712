"""Check the response to a range request, and stream its body into the caller's buffer.

From status and headers, the function :func:`check_range_answer` computes how many bytes of the response body precede
the requested range. Then :func:`fill_buffer` copies each network chunk once, directly to its position in the buffer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from aiostream_data.errors import (
    ObjectChangedError,
    ShortReadError,
    StorageError,
    StoreUnreachableError,
    WrongAnswerError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.urls import safe_url

_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(?:(\d{1,19})|\*)")

_TOTAL = re.compile(r"/(\d{1,19})\s*\Z")


class ContentRange(NamedTuple):
    """Byte range ``start`` to ``stop`` (exclusive) of an object. ``total`` is the object's size, or None if unknown."""

    start: int
    stop: int
    total: int | None


class ChunkReader(Protocol):
    """Response body whose ``readany`` returns all received bytes, as in aiohttp's StreamReader."""

    async def readany(self) -> bytes:
        """Wait for at least one byte and return all received bytes, or ``b""`` at the end of the body."""


class SizedReader(Protocol):
    """Response body whose ``read`` returns a limited number of bytes, as in aiohttp's StreamReader."""

    async def read(self, n: int) -> bytes:
        """Wait for at least one byte and return at most ``n`` received bytes, or ``b""`` at the end of the body."""


def ends_there(shard: ShardRef, start: int, nbytes: int) -> bool:
    """Return True if a range ends at the object's last byte.

    If the range ends at the last byte, the response body must end with the range.
    """
    return start + nbytes == shard.nbytes


def parse_content_range(header: str) -> ContentRange | None:
    """Parse a Content-Range header. Return None for an empty or malformed header."""
    found = _CONTENT_RANGE.fullmatch(header.strip())
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    total = int(found[3]) if found[3] is not None else None
    if last < first or (total is not None and last >= total):
        return None
    return ContentRange(first, last + 1, total)


def range_header(start: int, nbytes: int) -> str:
    """Return the value of the Range header for ``nbytes`` bytes. ``nbytes`` must be at least 1."""
    return f"bytes={start}-{start + nbytes - 1}"


def check_range_answer(
    url: str, status: int, headers: Mapping[str, str], start: int, nbytes: int, known_nbytes: int | None = None
) -> int:
    """Return how many bytes of a response body (status 200 or 206) precede byte ``start`` of the object.

    Args:
        headers: Response headers, as a case-insensitive mapping or with names in lower case.
        known_nbytes: Size of the object, or None if unknown.

    Raises:
        ShortReadError: The object ends before ``start + nbytes``.
        WrongAnswerError: The server sent a different range than requested, or reported a size other than
            ``known_nbytes``.
    """
    if status == 200:  # the server ignored the Range header and sends the whole object
        length = headers.get("content-length", "")
        given = parse_content_range(headers.get("content-range", ""))
        if given is not None and given[:2] == (start, start + nbytes) and length == str(nbytes):
            return 0  # rclone sends the requested range, but with status 200
        told_nbytes = int(length) if length.isdecimal() and len(length) < 20 else None
        if told_nbytes is not None and told_nbytes < start + nbytes:
            raise _too_short(url, start, nbytes, told_nbytes, known_nbytes)
        _check_size(url, known_nbytes, told_nbytes)
        return start
    told = headers.get("content-range", "")
    total = _TOTAL.search(told)
    if status == 206 and total is not None and int(total[1]) < start + nbytes:
        raise _too_short(url, start, nbytes, int(total[1]), known_nbytes)
    given = parse_content_range(told)
    if status != 206 or given is None:
        raise WrongAnswerError(
            safe_url(url),
            f"the server answered a range request with HTTP {status} and Content-Range {told[:80]!r}; "
            "use a server that supports range requests",
        )
    if (given.start, given.stop) != (start, start + nbytes):
        raise WrongAnswerError(
            safe_url(url),
            f"the server returned bytes {given.start} to {given.stop} instead of the requested bytes "
            f"{start} to {start + nbytes}; check the server or proxy",
        )
    _check_size(url, known_nbytes, given.total)
    return 0


def check_version(url: str, known: str, found: str) -> None:
    """Compare the version of the shard with the version in the response. An unknown version ("") matches all versions.

    Raises:
        ObjectChangedError: The version of the shard differs from the version in the response.
    """
    if known and found and known.strip('"') != found.strip('"'):  # some listings contain ETags without quotes
        raise ObjectChangedError(safe_url(url), f"the object was replaced: version {known!r} is now {found!r}")


def _check_size(url: str, known_nbytes: int | None, told_nbytes: int | None) -> None:
    """Raise WrongAnswerError if the response reports a different object size.

    A different size usually means that the object was replaced.
    """
    if known_nbytes is not None and told_nbytes is not None and known_nbytes != told_nbytes:
        raise _other_size(url, known_nbytes, told_nbytes)


def _too_short(url: str, start: int, nbytes: int, total: int, known_nbytes: int | None) -> StorageError:
    if known_nbytes is None or known_nbytes < start + nbytes:
        return short_object(url, start, nbytes, total)
    return _other_size(url, known_nbytes, total)


def _other_size(url: str, known_nbytes: int, told_nbytes: int) -> WrongAnswerError:
    return WrongAnswerError(
        safe_url(url),
        f"the object size changed from {known_nbytes} to {told_nbytes} bytes after it was listed; "
        "list or index the dataset again",
    )


def short_object(url: str, start: int, nbytes: int, total: int) -> ShortReadError:
    return ShortReadError(
        safe_url(url),
        f"cannot read bytes {start} to {start + nbytes}: the object has only {total} bytes; "
        "list or index the dataset again",
    )


async def read_at_most(body: SizedReader, limit_nbytes: int) -> bytes:
    """Read and return at most the first ``limit_nbytes`` bytes of a response body."""
    parts: list[bytes] = []
    room = limit_nbytes
    while room > 0 and (chunk := await body.read(room)):
        parts.append(chunk)
        room -= len(chunk)
    return b"".join(parts)


async def fill_buffer(
    url: str,
    body: ChunkReader,
    buffer: memoryview,
    *,
    skip: int = 0,
    exact: bool = True,
    filled: Callable[[int], None] = lambda nbytes: None,
) -> None:
    """Skip ``skip`` bytes of the response body, then copy the body into ``buffer``.

    Args:
        exact: Require that the body ends when the buffer is full. Reading a body to its end also returns the connection
            to its pool.
        filled: Function that is called after every chunk with the number of buffer bytes filled so far.

    Raises:
        StoreUnreachableError: The connection was closed before the buffer was full. The caller can retry the request.
        WrongAnswerError: The body is longer than requested.
    """
    position = -skip
    while position < len(buffer):
        chunk = await body.readany()
        if not chunk:
            raise StoreUnreachableError(
                safe_url(url), f"the server closed the connection after {max(position, 0)} of {len(buffer)} bytes"
            )
        place = max(position, 0)
        fresh = memoryview(chunk)[place - position : place - position + len(buffer) - place]
        buffer[place : place + len(fresh)] = fresh
        position += len(chunk)
        filled(min(max(position, 0), len(buffer)))
    if exact and (position > len(buffer) or await body.readany()):
        raise WrongAnswerError(
            safe_url(url), f"the server sent more than the requested {len(buffer)} bytes; check the server or proxy"
        )
