"""Cut a listing into pages: prefix, delimiter, and where to go on, the same for S3 and GCS."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_LAST = "\U0010ffff"
"""Stands behind every key that begins with what is before it."""


@dataclass(frozen=True, slots=True)
class ListingPage:
    """Part of a listing.

    Attributes:
        keys: Keys of objects, in order.
        prefixes: What the delimiter rolled up, in order.
        after: The next page begins behind this; None at the end.
    """

    keys: tuple[str, ...]
    prefixes: tuple[str, ...]
    after: str | None


def list_page(
    keys: Sequence[str], *, prefix: str = "", delimiter: str = "", after: str = "", limit: int = 1000
) -> ListingPage:
    """Return the page of at most ``limit`` keys and prefixes that follow ``after``.

    Args:
        keys: In order of their bytes.
        after: A key, or what the page before told. Keys up to and with it are left out, and so is all that a prefix
            which ends a page stands for.
    """
    place = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
    found: list[str] = []
    rolled: list[str] = []
    last = after
    while place < len(keys) and keys[place].startswith(prefix):
        key = keys[place]
        if len(found) + len(rolled) >= limit:
            return ListingPage(tuple(found), tuple(rolled), last)
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        if cut < 0:
            found.append(key)
            last, place = key, place + 1
            continue
        common = key[: cut + len(delimiter)]
        rolled.append(common)
        last = common + _LAST
        place = bisect_right(keys, last)
    return ListingPage(tuple(found), tuple(rolled), None)


def to_token(after: str) -> str:
    """Return what clients send back for the next page; it says nothing to them."""
    return urlsafe_b64encode(after.encode("utf-8", "surrogatepass")).decode()


def from_token(token: str) -> str:
    """Return what was put into a token.

    Raises:
        ValueError: Nobody here made it.
    """
    return b64decode(token.encode(), altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
