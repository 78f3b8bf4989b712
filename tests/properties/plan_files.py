"""Small local files for drawn plans, written when first asked for and removed at exit. Every record is unique."""

from __future__ import annotations

import atexit
import gzip
import shutil
import tempfile
from functools import cache
from pathlib import Path

import aiostream_data as asd

ROWS = (7, 0, 12, 1)
"""Records of each file of a kind."""


@cache
def folder() -> Path:
    """Return the folder with files named after what is in them."""
    path = Path(tempfile.mkdtemp(prefix="drawn-plans-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    for file, rows in enumerate(ROWS):
        names = [f"{file}:{row}" for row in range(rows)]
        _write_records(path / f"{file}.tfrecord", [name.encode() * (row % 3 + 1) for row, name in enumerate(names)])
        _write_records(path / f"{file}.tfrecord.gz", [f"gz {name}".encode() for name in names])
        _write_records(path / f"{file}.example", [_example(file, row) for row in range(rows)])
        (path / f"{file}.txt").write_text("".join(f"line {name}\n" for name in names))
        (path / f"{file}.txt.gz").write_bytes(gzip.compress("\n".join(f"gz {name}" for name in names).encode()))
        (path / f"{file}.bin").write_bytes(b"head" + b"".join(f"{name:>8}".encode() for name in names))
    return path


def pattern(suffix: str) -> str:
    """Return the pattern that finds every file whose name ends so."""
    return str(folder() / f"*{suffix}")


def _write_records(path: Path, records: list[bytes]) -> None:
    with asd.TFRecordWriter(path, "gzip" if path.suffix == ".gz" else "") as writer:
        for record in records:
            writer.write(record)


def _example(file: int, row: int) -> bytes:
    values = [100 * file + row] * (row % 3)
    return asd.encode_example({"n": 100 * file + row, "name": f"{file}:{row}", "values": values})
