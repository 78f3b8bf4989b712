"""Puffin files with deletion vectors, which pyiceberg reads but cannot write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from pyroaring import BitMap

__all__ = ["puffin", "vector"]

_MAGIC = b"PFA1"


def vector(rows: Sequence[int]) -> bytes:
    """Return a deletion vector of these rows."""
    keys = sorted({row >> 32 for row in rows})
    body = b"\xd1\xd3\x39\x64" + len(keys).to_bytes(8, "little")
    for key in keys:
        body += key.to_bytes(4, "little") + BitMap([row & 0xFFFFFFFF for row in rows if row >> 32 == key]).serialize()
    return len(body).to_bytes(4, "big") + body + crc32(body).to_bytes(4, "big")


def puffin(vectors: Mapping[str, bytes], **more: Any) -> bytes:
    """Return a Puffin file with the vectors of data files. ``more`` replaces entries of its list of blobs."""
    content, blobs = _MAGIC, []
    for url, each in vectors.items():
        blob = {
            "type": "deletion-vector-v1",
            "fields": [2147483546],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": len(content),
            "length": len(each),
            "properties": {"referenced-data-file": url, "cardinality": "1"},
        }
        blobs.append({**blob, **more})
        content += each
    footer = json.dumps({"blobs": blobs}).encode()
    return content + _MAGIC + footer + len(footer).to_bytes(4, "little") + bytes(4) + _MAGIC
