"""Names of the files in a cache folder. The cache ignores all files with other names.

- ``aiostream_data-shard-cache.json`` marks the folder as a shard cache and stores the version of its layout.
- ``shard-<key>/`` is the folder of one object. The key is a hash of the object's URL, version and size.
- ``shard-<key>/<start>-<stop>.piece`` stores a byte range of the object (hexadecimal offsets), with checksums.
- ``shard-<key>/used`` is an empty file whose modification time is the time of the object's last use.
- ``part-<owner>-<number>`` is a piece that is being written. The complete file is then renamed.
- ``claim-<owner>-<bytes>`` reserves ``<bytes>`` bytes, which one process may still write.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Final

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.cache.spans import ByteSpan
from aiostream_data.storage.urls import split_url

MARKER: Final = "aiostream_data-shard-cache.json"
USED: Final = "used"

MOST_NBYTES: Final = 1 << 40
"""Maximum size in bytes of a piece or claim. The cache ignores files whose names contain a larger size."""

_OWNER = r"[0-9a-f]{12}-[0-9]+-[0-9]+-[0-9a-f]{8}"
_SHARD = re.compile(r"shard-([0-9a-f]{40})")
_PIECE = re.compile(r"([0-9a-f]+)-([0-9a-f]+)\.piece")
_PART = re.compile(rf"part-({_OWNER})-[0-9a-f]+")
_CLAIM = re.compile(rf"claim-({_OWNER})-([0-9]+)")


def key_of(place: str, shard: ShardRef) -> str:
    """Compute the cache key of an object: 40 hexadecimal digits of a hash, which hides the URL and its signature.

    Args:
        place: Endpoint of the store. Different stores can have equal URLs.
        shard: Reference to the object, with version and size.
    """
    scheme, path = split_url(shard.url)
    url = os.path.abspath(path) if scheme == "file" else f"{scheme}://{path}"
    said = json.dumps([place, url, shard.version, shard.nbytes])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def shard_name(key: str) -> str:
    return f"shard-{key}"


def key_in(name: str) -> str | None:
    found = _SHARD.fullmatch(name)
    return found[1] if found else None


def piece_name(span: ByteSpan) -> str:
    return f"{span.start:x}-{span.stop:x}.piece"


def span_in(name: str) -> ByteSpan | None:
    found = _PIECE.fullmatch(name)
    if found is None:
        return None
    span = ByteSpan(int(found[1], 16), int(found[2], 16))
    is_sound = span.start < span.stop < 1 << 63 and span.nbytes <= MOST_NBYTES and piece_name(span) == name
    return span if is_sound else None


def part_name(owner: str, number: int) -> str:
    return f"part-{owner}-{number:x}"


def part_owner_in(name: str) -> str | None:
    found = _PART.fullmatch(name)
    return found[1] if found else None


def claim_name(owner: str, nbytes: int) -> str:
    return f"claim-{owner}-{nbytes}"


def claim_in(name: str) -> tuple[str, int] | None:
    """Return the owner and the number of bytes in the name of a claim file. Return None if ``name`` is not the name of
    a claim."""
    found = _CLAIM.fullmatch(name)
    return (found[1], int(found[2])) if found and int(found[2]) <= MOST_NBYTES else None
