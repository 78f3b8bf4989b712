"""The TFRecord files of P1, with and without captions: written once by our own writer, kept outside the repository."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import aiostream_data as asd
from benchmarks.workload import Workload, captions, example_columns

FILES = 40
LAYOUT = 1
"""Raised when the files' contents change, so that older ones are written anew."""


def default_root() -> Path:
    """Return ``$BENCH_DATA``, or a folder among the temporary files."""
    return Path(os.environ.get("BENCH_DATA") or Path(tempfile.gettempdir()) / "aiostream-data-bench")


def example_files(root: Path, rows: int, *, with_captions: bool = False) -> Workload:
    """Return the workload over ``rows`` Examples in 40 files under ``root``; write them if they are not there.

    Args:
        with_captions: Give each Example a ``bytes`` feature of 40 bytes.

    Raises:
        ValueError: ``rows`` cannot be divided evenly.
    """
    if rows % FILES:
        raise ValueError(f"rows must be a multiple of {FILES}, got {rows}")
    folder = root / f"examples{'-captions' if with_captions else ''}-{rows}-v{LAYOUT}"
    per_file = rows // FILES
    paths = tuple(folder / f"part-{number:03}.tfrecord" for number in range(FILES))
    complete = folder / "complete.json"
    if not complete.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for number, path in enumerate(paths):
            _write(path, number * per_file, per_file, with_captions=with_captions)
        nbytes = sum(path.stat().st_size for path in paths)
        complete.write_text(json.dumps({"rows": rows, "files": FILES, "nbytes": nbytes}))
    return Workload(rows=rows, paths=paths, rows_per_file=per_file)


def _write(path: Path, first: int, count: int, *, with_captions: bool) -> None:
    columns: dict[str, Any] = {**example_columns(first, count)}
    if with_captions:
        columns["caption"] = captions(range(first, first + count))
    names = list(columns)
    with asd.TFRecordWriter(path) as writer:
        for row in zip(*columns.values(), strict=True):
            writer.write(asd.encode_example(dict(zip(names, row, strict=True))))
