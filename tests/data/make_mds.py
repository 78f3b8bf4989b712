"""Write the MDS folders of ``tests/data/mds`` with MosaicML's library, and the values that it reads from them.

    pip install mosaicml-streaming && python tests/data/make_mds.py

The tests compare what the package reads with ``expected.json``.
"""

from __future__ import annotations

import io
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

COLUMNS = {
    "id": "int",
    "text": "str",
    "data": "bytes",
    "small": "uint8",
    "half": "float16",
    "single": "float32",
    "wide": "int64",
    "fixed": "ndarray:int16:2,3",
    "typed": "ndarray:float32",
    "free": "ndarray",
    "json": "json",
    "picture": "jpeg",
    "drawing": "png",
    "raw": "pil",
    "digits": "str_int",
    "number": "str_float",
    "money": "str_decimal",
}
FOLDERS = {"plain": None, "zstd": "zstd:7", "gz": "gz:9"}
ROWS = 7


def image(row: int) -> Image.Image:
    return Image.fromarray(np.full((2 + row % 2, 3, 3), 30 * row, np.uint8))


def encoded(kind: str, row: int) -> bytes:
    file = io.BytesIO()
    image(row).save(file, kind)
    return file.getvalue()


def sample(row: int) -> dict[str, Any]:
    return {
        "id": row - 3,
        "text": "naïve " * row,
        "data": bytes(range(row)),
        "small": 250 + row % 5,
        "half": row / 2,
        "single": row / 3,
        "wide": -(2**62) + row,
        "fixed": np.arange(6, dtype=np.int16).reshape(2, 3) * row,
        "typed": np.arange(1 + row, dtype=np.float32),
        "free": np.arange(2 * (1 + row)).reshape(2, 1 + row).astype(["uint8", "int64", "float64"][row % 3]),
        "json": {"row": row, "nested": [None, 1.5, "x"] * (row % 3)},
        "picture": encoded("JPEG", row),
        "drawing": encoded("PNG", row),
        "raw": image(row),
        "digits": 10**row,
        "number": row / 7,
        "money": Decimal(row) / 8,
    }


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Image.Image):
        return np.asarray(value).tolist()
    if isinstance(value, np.ndarray | np.generic):
        return [str(value.dtype), value.tolist()]
    return str(value) if isinstance(value, Decimal) else value


def main() -> None:
    from streaming import MDSWriter
    from streaming.base.format.mds.encodings import mds_decode

    root = Path(__file__).parent / "mds"
    shutil.rmtree(root, ignore_errors=True)
    for name, compression in FOLDERS.items():
        how = {"columns": COLUMNS, "compression": compression, "hashes": ["sha1"], "size_limit": 4000}
        with MDSWriter(out=str(root / name), **how) as writer:
            for row in range(ROWS):
                writer.write(sample(row))
    from streaming.base.format.mds.encodings import mds_encode

    expected = [
        {
            name: plain(mds_decode(COLUMNS[name], mds_encode(COLUMNS[name], value)))
            for name, value in sample(row).items()
        }
        for row in range(ROWS)
    ]
    for row, values in enumerate(expected):
        values["picture"], values["drawing"] = encoded("JPEG", row).hex(), encoded("PNG", row).hex()
    (root / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
