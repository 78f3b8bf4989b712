"""Sum a list of shards up in a few hundred bytes, from which changes can be told and often named."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import NotRequired, TypedDict

from aiostream_data.object_names import lasting_url
from aiostream_data.plan.values import hashed

MAX_MARKED = 128
"""Shards of the longest list of which each has a mark of its own."""

MARK_NBYTES = 4


class ShardSummary(TypedDict):
    """A list of shards; JSON-safe.

    Attributes:
        count: Number of shards.
        digest: 16 hex digits over their URLs, in order.
        versions: 16 hex digits over their versions; only when each is known.
        marks: Base64 of 4 bytes per URL, in order; only up to :data:`MAX_MARKED` shards.
        version_marks: Base64 of a byte per version, likewise.
    """

    count: int
    digest: str
    versions: NotRequired[str]
    marks: NotRequired[str]
    version_marks: NotRequired[str]


def summarise_shards(urls: Sequence[str], versions: Sequence[str | int | None] | None = None) -> ShardSummary:
    """Return the summary of a list of shards; a million take about half a second.

    Args:
        urls: In the order in which they are numbered, before any permutation.
        versions: One per URL, where the store tells them: a size, an ETag, a generation; None for unknown.
    """
    lasting = _lasting_urls(urls)
    summary = ShardSummary(count=len(lasting), digest=_digest(lasting))
    known = [str(version) for version in versions or () if version is not None]
    marked = len(lasting) <= MAX_MARKED
    if marked:
        summary["marks"] = b64encode(b"".join(map(_mark, lasting))).decode()
    if known and len(known) == len(lasting):
        summary["versions"] = _digest(known)
        if marked:
            summary["version_marks"] = b64encode(b"".join(_mark(version)[:1] for version in known)).decode()
    return summary


def marks_of(summary: ShardSummary) -> list[bytes] | None:
    """Return the mark of each shard in order, or None where there are none that fit."""
    return _split(summary.get("marks"), MARK_NBYTES, summary)


def version_marks_of(summary: ShardSummary) -> list[bytes] | None:
    """Return the mark of each shard's version in order, or None where there are none that fit."""
    return _split(summary.get("version_marks"), 1, summary)


def _split(text: object, nbytes: int, summary: ShardSummary) -> list[bytes] | None:
    if not isinstance(text, str) or len(text) > 2 * MAX_MARKED * nbytes:
        return None
    try:
        marks = b64decode(text, validate=True)
    except ValueError:
        return None
    found = [marks[at : at + nbytes] for at in range(0, len(marks), nbytes)]
    return found if len(found) == summary["count"] else None


def _lasting_urls(urls: Sequence[str]) -> list[str]:
    together = "\n".join(urls)
    return list(map(lasting_url, urls)) if "@" in together or "?" in together else list(urls)


def _digest(texts: Sequence[str]) -> str:
    # Lengths first: no two lists are joined into one text.
    lengths = ",".join(map(str, map(len, texts)))
    content = blake2b(lengths.encode(), digest_size=8)
    content.update(b"\0")
    content.update("".join(texts).encode("utf-8", "surrogatepass"))
    return content.hexdigest()


def _mark(text: str) -> bytes:
    return bytes.fromhex(hashed(text, MARK_NBYTES))
