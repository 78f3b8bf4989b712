"""MDS shards and their index, written by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = {"data": "bytes", "n": "int", "text": "str"}

Sample = tuple[bytes, int, str]


def described(columns: Mapping[str, str] = COLUMNS, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the columns as an index and a header describe them."""
    fixed = {"int": 8, "int32": 4, "uint8": 1, **(sizes or {})}
    return {
        "column_names": list(columns),
        "column_encodings": list(columns.values()),
        "column_sizes": [fixed.get(encoding) for encoding in columns.values()],
    }


def encoded(data: bytes, n: int, text: str) -> bytes:
    """Return a sample of ``COLUMNS``."""
    raw = text.encode()
    return struct.pack("<II", len(data), len(raw)) + data + struct.pack("<q", n) + raw


def shard(samples: Sequence[bytes], header: Any = None) -> bytes:
    """Return a shard of encoded samples."""
    described_as = header if isinstance(header, bytes) else json.dumps(header or described()).encode()
    edges = [4 + 4 * (len(samples) + 1) + len(described_as)]
    for sample in samples:
        edges.append(edges[-1] + len(sample))
    table = struct.pack(f"<{len(edges) + 1}I", len(samples), *edges)
    return table + described_as + b"".join(samples)


def index(files: Mapping[str, bytes], header: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return an index of uncompressed shards by name."""
    shards = [
        {
            **(header or described()),
            "format": "mds",
            "version": 2,
            "compression": None,
            "samples": int.from_bytes(data[:4], "little"),
            "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
            "zip_data": None,
            **more,
        }
        for name, data in files.items()
    ]
    return {"version": 2, "shards": shards}


def write_folder(folder: Path, files: Mapping[str, bytes], header: dict[str, Any] | None = None, **more: Any) -> Path:
    """Write shards and their index. Return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "index.json").write_text(json.dumps(index(files, header, **more)))
    return folder
