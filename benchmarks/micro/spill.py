"""Measure a shuffle of four times the memory limit, its rows in a file: ``python -m benchmarks.micro.spill [FOLDER]``.

TFRecord files of 1 KB and 100 KB rows are read from FOLDER (the system's for temporary files by default), shuffled,
and batched. Each run is a process of its own, three times in turn; the medians are printed. What was just written is
in the page cache while the machine has memory for it, the rows that wait too. The last way throws these out of it, so
that every row is read from the disk again.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

LIMIT = 64 << 20
BUFFER_NBYTES = 4 * LIMIT
PASSES = 3
"""Buffers that are read."""

ROW_NBYTES = (1_000, 100_000)
FILES = 8
RUNS = 3
WAYS = ("no shuffle", "in memory", "in a file", "in a file, never cached")


def main() -> None:
    """Write the files, run every way in turn, and print a table."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        print("| row | shuffle | memory limit | rows/s | MB/s | resident, at most | file, at most |")
        print("|---|---|---|---|---|---|---|")
        for row_nbytes in ROW_NBYTES:
            paths = _write(Path(folder), row_nbytes)
            runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for _ in range(RUNS):
                for way in WAYS:
                    runs[way].append(_in_a_process(way, row_nbytes, folder, paths))
            for way in WAYS:
                print(_line(way, row_nbytes, runs[way]), flush=True)
            for path in paths:
                Path(path).unlink()


def _write(folder: Path, row_nbytes: int) -> list[str]:
    import numpy as np

    from aiostream_data import TFRecordWriter

    rng = np.random.default_rng(0)
    paths = [str(folder / f"{number}.tfrecord") for number in range(FILES)]
    for path in paths:
        with TFRecordWriter(path) as writer:
            for _ in range(PASSES * BUFFER_NBYTES // row_nbytes // FILES):
                writer.write(rng.bytes(row_nbytes))
    return paths


def _in_a_process(way: str, row_nbytes: int, folder: str, paths: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.micro.spill", "--run", way, str(row_nbytes), folder, *paths]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _run(way: str, row_nbytes: int, folder: str, paths: list[str]) -> dict[str, Any]:
    from aiostream_data import Dataset
    from aiostream_data.metrics.counters import PEAK_ON_DISK

    dataset: Dataset[Any] = Dataset.from_tfrecord(paths, cycle_length=4)
    if way != "no shuffle":
        dataset = dataset.shuffle(BUFFER_NBYTES // row_nbytes, seed=1, spill=folder if "file" in way else False)
    if way.endswith("never cached"):
        _cache_nothing()
    limit = 8 * BUFFER_NBYTES if way == "in memory" else LIMIT
    started = perf_counter()
    with dataset.batch(64).open(memory_limit=limit) as loader:
        rows = sum(len(batch) for batch in loader)
        seconds = perf_counter() - started
        on_disk = sum(stage.extra.get(PEAK_ON_DISK, 0) for stage in loader.stats().stages)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"rows": rows / seconds, "resident": resident, "on disk": on_disk, "limit": limit}


def _cache_nothing() -> None:
    """Let what rows wait in be written to the disk, and forgotten, each time that something is added."""
    from aiostream_data.transforms.spill_file import SpillFile

    write = SpillFile.write

    def write_through(file: SpillFile, start: int, parts: Any) -> None:
        write(file, start, parts)
        os.fdatasync(file._file.fileno())
        os.posix_fadvise(file._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    files: Any = SpillFile
    files.write = write_through


def _line(way: str, row_nbytes: int, runs: list[dict[str, Any]]) -> str:
    rows, resident, on_disk = (median(run[name] for run in runs) for name in ("rows", "resident", "on disk"))
    sizes = f"{resident / (1 << 20):,.0f} MiB | {on_disk / (1 << 20):,.0f} MiB"
    limit = runs[0]["limit"] >> 20
    return f"| {row_nbytes:,} B | {way} | {limit:,} MiB | {rows:,.0f} | {rows * row_nbytes / 1e6:,.0f} | {sizes} |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(_run(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5:])))
    else:
        main()
