"""Sum a list of shards up in a few hundred bytes, from which changes can be told and often named."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from aiostream_data.object_names import lasting_url
from aiostream_data.plan.values import hashed
from aiostream_data.rows.records import ShardRef

MAX_MARKED = 128
"""Shards of the longest list of which each has a mark of its own."""

MARK_NBYTES = 4
VERSION_MARK_NBYTES = 2

By: TypeAlias = Literal["version", "size"]
"""What tells one content of a shard from another."""


class ShardSummary(TypedDict):
    """A list of shards; JSON-safe.

    Attributes:
        count: Number of shards.
        digest: 16 hex digits over their URLs, in order.
        versions: 16 hex digits over their versions; only when each is known.
        by: What ``versions`` are, if they are not versions.
        marks: Base64 of 4 bytes per URL, in order; only up to :data:`MAX_MARKED` shards.
        version_marks: Base64 of 2 bytes per version, likewise.
        numbered: Numbers of shards in epochs that began before the list changed; see :class:`.ShardNumbers`.
    """

    count: int
    digest: str
    versions: NotRequired[str]
    by: NotRequired[By]
    marks: NotRequired[str]
    version_marks: NotRequired[str]
    numbered: NotRequired[list[Any]]


def summary_of(shards: Sequence[ShardRef]) -> ShardSummary:
    """Return the summary of shards as they were found."""
    by, versions = versions_of(shards)
    return summarise_shards([shard.url for shard in shards], versions, by)


def versions_of(shards: Sequence[ShardRef]) -> tuple[By, list[str | int | None]]:
    """Return what tells the contents of the shards: their versions, or their sizes where one has no version."""
    if all(shard.version for shard in shards):
        return "version", [shard.version for shard in shards]
    return "size", [shard.nbytes for shard in shards]


def summarise_shards(
    urls: Sequence[str], versions: Sequence[str | int | None] | None = None, by: By = "version"
) -> ShardSummary:
    """Return the summary of a list of shards; a million take about half a second.

    Args:
        urls: In the order in which they are numbered, before any permutation.
        versions: One per URL, where the store tells them: a size, an ETag, a generation; None for unknown.
    """
    lasting = lasting_urls(urls)
    summary = ShardSummary(count=len(lasting), digest=digest_of(lasting))
    known = [str(version) for version in versions or () if version is not None]
    marked = len(lasting) <= MAX_MARKED
    if marked:
        summary["marks"] = b64encode(b"".join(map(mark, lasting))).decode()
    if known and len(known) == len(lasting):
        summary["versions"] = digest_of(known)
        if marked:
            summary["version_marks"] = b64encode(b"".join(map(version_mark, known))).decode()
        if by != "version":
            summary["by"] = by
    return summary


def marks_of(summary: ShardSummary) -> list[bytes] | None:
    """Return the mark of each shard in order, or None where there are none that fit."""
    return _split(summary.get("marks"), MARK_NBYTES, summary)


def version_marks_of(summary: ShardSummary) -> list[bytes] | None:
    """Return the mark of each shard's version in order, or None where there are none that fit."""
    return _split(summary.get("version_marks"), VERSION_MARK_NBYTES, summary)


def alike_by(old: ShardSummary, new: ShardSummary) -> bool:
    """Return True if the contents of two lists can be compared."""
    return "versions" in old and "versions" in new and old.get("by") == new.get("by")


def _split(text: object, nbytes: int, summary: ShardSummary) -> list[bytes] | None:
    if not isinstance(text, str) or len(text) > 2 * MAX_MARKED * nbytes:
        return None
    try:
        marks = b64decode(text, validate=True)
    except ValueError:
        return None
    found = [marks[at : at + nbytes] for at in range(0, len(marks), nbytes)]
    return found if len(found) == summary["count"] else None


def lasting_urls(urls: Sequence[str]) -> list[str]:
    """Return URLs without what signs them."""
    together = "\n".join(urls)
    return list(map(lasting_url, urls)) if "@" in together or "?" in together else list(urls)


def digest_of(texts: Sequence[str]) -> str:
    """Return 16 hex digits over texts, in order."""
    # Lengths first: no two lists are joined into one text.
    lengths = ",".join(map(str, map(len, texts)))
    content = blake2b(lengths.encode(), digest_size=8)
    content.update(b"\0")
    content.update("".join(texts).encode("utf-8", "surrogatepass"))
    return content.hexdigest()


def mark(lasting_url: str) -> bytes:
    """Return the mark of a shard."""
    return bytes.fromhex(hashed(lasting_url, MARK_NBYTES))


def version_mark(version: str) -> bytes:
    """Return the mark of a shard's version."""
    return bytes.fromhex(hashed(version, VERSION_MARK_NBYTES))
