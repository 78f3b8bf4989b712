"""Write the golden WebDataset shards: archives that the webdataset library writes, and the samples that it reads.

Only needed to make them anew, in an environment of its own with ``pip install webdataset``::

    python tests/data/make_webdataset.py

``golden/webdataset.tar`` and ``golden/webdataset.tar.gz`` are the shards. ``golden/webdataset.json`` holds the raw
fields of each sample, in hex, and the fields that the library decodes.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent / "golden"


def samples() -> list[dict[str, Any]]:
    """Return samples for the library's writer, which encodes fields by extension."""
    made: list[dict[str, Any]] = []
    for row in range(12):
        sample: dict[str, Any] = {
            "__key__": f"{'folder/' * (row % 4)}{'long' * 30 if row == 5 else ''}{row:04}",
            "cls": row,
            "json": {"row": row, "words": ["é", None]},
            "txt": f"text {row}",
            "npy": np.arange(row, dtype=np.int32),
        }
        if row % 3:
            sample["seg.bin"] = bytes(range(row)) * 100
        made.append(sample)
    return made


def main() -> None:
    """Write the shards and what the library reads from them."""
    wds = importlib.import_module("webdataset")
    for ending in ("tar", "tar.gz"):
        with wds.TarWriter(str(GOLDEN / f"webdataset.{ending}"), mtime=0) as writer:
            for sample in samples():
                writer.write(sample)
    path = str(GOLDEN / "webdataset.tar")
    found = []
    raw = wds.WebDataset(path, shardshuffle=False)
    decoded = wds.WebDataset(path, shardshuffle=False).decode()
    for before, after in zip(raw, decoded, strict=True):
        fields = {name: value.hex() for name, value in before.items() if isinstance(value, bytes)}
        values = {name: after[name] for name in ("cls", "json", "txt")} | {"npy": after["npy"].tolist()}
        found.append({"key": before["__key__"], "fields": fields, "values": values})
    (GOLDEN / "webdataset.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
