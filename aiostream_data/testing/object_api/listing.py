"""Paging of object listings with prefix, delimiter and continuation token, shared by S3 and GCS."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_LAST = "\U0010ffff"
"""Suffix that sorts after every key with the same prefix."""


@dataclass(frozen=True, slots=True)
class ListingPage:
    """One page of an object listing.

    Attributes:
        keys: Object keys on this page, in order.
        prefixes: Common key prefixes up to the delimiter, in order.
        after: Exclusive start of the next page; None on the last page.
    """

    keys: tuple[str, ...]
    prefixes: tuple[str, ...]
    after: str | None


def list_page(
    keys: Sequence[str], *, prefix: str = "", delimiter: str = "", after: str = "", limit: int = 1000
) -> ListingPage:
    """Return the page of at most ``limit`` keys and prefixes that sort after ``after``.

    Args:
        keys: Object keys in byte order.
        prefix: The listing contains only keys with this prefix.
        delimiter: Keys that contain the delimiter after the prefix are grouped into common prefixes.
        after: An object key, or the field ``after`` of the previous page. The listing omits keys up to ``after``
            (inclusive), and all keys of a common prefix that ended the previous page.
        limit: Maximum number of keys and prefixes on the page.
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
    """Encode the start of a page as an opaque continuation token."""
    return urlsafe_b64encode(after.encode("utf-8", "surrogatepass")).decode()


def from_token(token: str) -> str:
    """Decode a continuation token.

    Raises:
        ValueError: The continuation token is invalid.
    """
    return b64decode(token.encode(), altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
