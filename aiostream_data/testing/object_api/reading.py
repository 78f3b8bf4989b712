"""Ranges and conditions in requests for object content, shared by all dialects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from aiostream_data.testing.object_api.objects import Slice, StoredObject

_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


class Unmet(Enum):
    """HTTP status of the response if a condition in the request prevents sending the object."""

    CHANGED = 412
    SAME = 304


def asked_range(header: str, nbytes: int) -> tuple[int, int] | None:
    """Return start and stop of the requested byte range, clipped to the object, or None for the whole object.

    The server ignores a malformed or multi-part Range header, as HTTP requires.

    Raises:
        ValueError: The requested range lies outside the object.
    """
    found = _RANGE.fullmatch(header.strip().replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:  # suffix range: the last N bytes
        wanted = int(found[2])
        if wanted == 0 or nbytes == 0:
            raise ValueError("no byte is asked for")
        return max(nbytes - wanted, 0), nbytes
    start = int(found[1])
    stop = int(found[2]) + 1 if found[2] else nbytes
    if found[2] and stop <= start:
        return None
    if start >= nbytes:
        raise ValueError("the range begins behind the object")
    return start, min(stop, nbytes)


def clipped_range(header: str, nbytes: int) -> tuple[int, int]:
    """Return the requested slice, or the whole object if the range is invalid."""
    try:
        return asked_range(header, nbytes) or (0, nbytes)
    except ValueError:
        return 0, nbytes


def unmet_condition(headers: Mapping[str, str], etag: str) -> Unmet | None:
    """Compare the If-Match and If-None-Match headers with the object's ETag."""
    wanted = headers.get("if-match")
    if wanted is not None and not _names(wanted, etag):
        return Unmet.CHANGED
    unwanted = headers.get("if-none-match")
    return Unmet.SAME if unwanted is not None and _names(unwanted, etag) else None


def content_range(part: Slice) -> str:
    """Format the Content-Range header of an object slice."""
    return f"bytes {part.start}-{part.stop - 1}/{part.stored.nbytes}"


def whole(stored: StoredObject) -> Slice:
    """Return the whole object as a slice."""
    return Slice(stored, 0, stored.nbytes)


def _names(header: str, etag: str) -> bool:
    """Return True if a list of ETags contains ``etag``. Quotes are optional, because some clients omit them."""
    told = {item.strip().removeprefix("W/").strip('"') for item in header.split(",")}
    return "*" in told or etag.strip('"') in told
