"""Small local files of every format that drawn programs read. Every record is unique."""

from __future__ import annotations

import atexit
import gzip
import os
import shutil
import tempfile
import zlib
from functools import cache
from pathlib import Path

import aiostream_data as asd

FOLDER = "ASD_METAMORPHIC_FILES"
"""Environment variable with the folder, for processes that go on with a run of this one."""

ROWS = (7, 0, 12, 1)
"""Records of each file of a kind."""


@cache
def folder() -> Path:
    """Return the folder with the files. They are written once and removed when this process exits."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    path = Path(tempfile.mkdtemp(prefix="metamorphic-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    for file, rows in enumerate(ROWS):
        _write(path, file, [f"{file}:{row}" for row in range(rows)])
    return path


def pattern(suffix: str) -> str:
    """Return the pattern that matches every file with this ending."""
    return str(folder() / f"*{suffix}")


def _write(path: Path, file: int, names: list[str]) -> None:
    records = [name.encode() * (row % 3 + 1) for row, name in enumerate(names)]
    _write_records(path / f"{file}.tfrecord", records, "")
    _write_records(path / f"{file}.tfrecord.gz", records, "gzip")
    _write_records(path / f"{file}.example", [_example(file, row) for row in range(len(names))], "")
    _write_records(path / f"{file}.steps", [_steps(file, row) for row in range(len(names))], "")
    lines = "".join(f"line {name}\n" for name in names).encode()
    (path / f"{file}.txt").write_bytes(lines)
    (path / f"{file}.txt.gz").write_bytes(gzip.compress(lines))
    (path / f"{file}.txt.z").write_bytes(zlib.compress(lines))
    (path / f"{file}.bin").write_bytes(b"head" + b"".join(f"{name:>8}".encode() for name in names))


def _write_records(path: Path, records: list[bytes], compression: str) -> None:
    with asd.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)


def _example(file: int, row: int) -> bytes:
    return asd.encode_example(
        {"n": 100 * file + row, "name": f"{file}:{row}", "values": [100 * file + row] * (row % 3)}
    )


def _steps(file: int, row: int) -> bytes:
    return asd.encode_sequence_example({"n": 100 * file + row}, {"t": [[step] for step in range(row % 4)]})
