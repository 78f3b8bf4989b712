"""Check the answer to a range request, and stream its body into the caller's buffer.

How this works: :func:`check_range_answer` decides from status and headers alone how many bytes of the
body stand before the asked-for ones; :func:`fill_buffer` then copies each network chunk once, to its
place, and never keeps the body in memory.
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
    """Bytes ``start`` to ``stop`` (excluded) of an object of ``total`` bytes, None when not told."""

    start: int
    stop: int
    total: int | None


class ChunkReader(Protocol):
    """The part of aiohttp's StreamReader that is needed here."""

    async def readany(self) -> bytes:
        """Return what has arrived, at least one byte; ``b""`` at the end of the body."""


class SizedReader(Protocol):
    """Another part of it."""

    async def read(self, n: int) -> bytes:
        """Return at most so many bytes that have arrived, at least one; ``b""`` at the end of the body."""


def ends_there(shard: ShardRef, start: int, nbytes: int) -> bool:
    """Return True if a range is the last one of an object, so that nothing may follow it, whatever was sent."""
    return start + nbytes == shard.nbytes


def parse_content_range(header: str) -> ContentRange | None:
    """Parse a Content-Range header; None when it is missing or malformed."""
    found = _CONTENT_RANGE.fullmatch(header.strip())
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    total = int(found[3]) if found[3] is not None else None
    if last < first or (total is not None and last >= total):
        return None
    return ContentRange(first, last + 1, total)


def range_header(start: int, nbytes: int) -> str:
    """Return the value of a Range header; ``nbytes`` must be at least 1."""
    return f"bytes={start}-{start + nbytes - 1}"


def check_range_answer(
    url: str, status: int, headers: Mapping[str, str], start: int, nbytes: int, known_nbytes: int | None = None
) -> int:
    """Return how many bytes of a 200 or 206 body stand before byte ``start`` of the object.

    Args:
        headers: Must look names up without regard to case, or hold them in lower case.
        known_nbytes: Size of the object, where it is known.

    Raises:
        ShortReadError: The object ends before ``start + nbytes``.
        WrongAnswerError: The server sent another range than was asked for, or tells another size than is known.
    """
    if status == 200:  # the server ignores ranges, and sends everything
        length = headers.get("content-length", "")
        given = parse_content_range(headers.get("content-range", ""))
        if given is not None and given[:2] == (start, start + nbytes) and length == str(nbytes):
            return 0  # or it sends the range, says so twice, and calls it by the wrong status, as rclone does
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
            safe_url(url), f"a range was asked for; HTTP {status} came with Content-Range {told[:80]!r}"
        )
    if (given.start, given.stop) != (start, start + nbytes):
        raise WrongAnswerError(
            safe_url(url), f"bytes {start} to {start + nbytes} were asked for, {given.start} to {given.stop} came"
        )
    _check_size(url, known_nbytes, given.total)
    return 0


def check_version(url: str, known: str, found: str) -> None:
    """Compare the version of the shard with the one in the answer; an unknown one ("") matches any.

    Raises:
        ObjectChangedError: They differ.
    """
    if known and found and known.strip('"') != found.strip('"'):  # some list ETags without the quotes
        raise ObjectChangedError(safe_url(url), f"the object was replaced: version {known!r} is now {found!r}")


def _check_size(url: str, known_nbytes: int | None, told_nbytes: int | None) -> None:
    """Refuse an answer about an object of another size: what is read of it would be the beginning of something else."""
    if known_nbytes is not None and told_nbytes is not None and known_nbytes != told_nbytes:
        raise _other_size(url, known_nbytes, told_nbytes)


def _too_short(url: str, start: int, nbytes: int, total: int, known_nbytes: int | None) -> StorageError:
    if known_nbytes is None or known_nbytes < start + nbytes:
        return short_object(url, start, nbytes, total)
    return _other_size(url, known_nbytes, total)


def _other_size(url: str, known_nbytes: int, told_nbytes: int) -> WrongAnswerError:
    return WrongAnswerError(
        safe_url(url),
        f"the object has {known_nbytes} bytes, and the answer says that it has {told_nbytes}; was it replaced since "
        "it was listed?",
    )


def short_object(url: str, start: int, nbytes: int, total: int) -> ShortReadError:
    return ShortReadError(
        safe_url(url), f"bytes {start} to {start + nbytes} were asked for, the object has {total} bytes"
    )


async def read_at_most(body: SizedReader, limit_nbytes: int) -> bytes:
    """Return a body, cut after ``limit_nbytes``."""
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
    """Copy the body into ``buffer``, leaving out its first ``skip`` bytes.

    Args:
        exact: The body must end where the buffer does. Reading its end also lets the connection go
            back to its pool.
        filled: Is told how many bytes of the buffer are there, whenever some have come.

    Raises:
        StoreUnreachableError: The body broke off; worth another attempt.
        WrongAnswerError: More bytes came than were asked for.
    """
    position = -skip
    while position < len(buffer):
        chunk = await body.readany()
        if not chunk:
            raise StoreUnreachableError(
                safe_url(url), f"the connection broke off after {max(position, 0)} of {len(buffer)} bytes"
            )
        place = max(position, 0)
        fresh = memoryview(chunk)[place - position : place - position + len(buffer) - place]
        buffer[place : place + len(fresh)] = fresh
        position += len(chunk)
        filled(min(max(position, 0), len(buffer)))
    if exact and (position > len(buffer) or await body.readany()):
        raise WrongAnswerError(safe_url(url), f"more than the {len(buffer)} bytes asked for came")
