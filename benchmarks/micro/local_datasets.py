"""Time local files in the page cache through a Dataset: ``python -m benchmarks.micro.local_datasets``.

Rows are ways to read, columns the size of a file and how many are read at once. "threads + preadv" reads into reused
buffers. "threads + pread" reads into a new ``bytes`` object each time, and keeps it until the next: the ceiling of a
dataset that hands over bytes. The datasets have the default arguments, except ``cycle_length`` in "cycle", which is the
number of files read at once. A pass reads every file ``--times`` times. The first element is not timed, because it
waits for the listing.

Each figure is the median of ``--repetitions`` passes, the ways taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import aiostream_data as asd
from benchmarks.machine import circumstances
from benchmarks.micro.local_files import Buffers, Work, bytes_pass, thread_pass, write_files

SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "256 KiB": 256 << 10, "1 MiB": 1 << 20, "8 MiB": 8 << 20}
AT_ONCE = (4, 32)

Figures = dict[str, float]


@dataclass(frozen=True)
class Cell:
    """Files that one pass reads, ``times`` times."""

    folder: Path
    work: Work
    times: int

    @property
    def patterns(self) -> list[str]:
        """The pattern of all files, once for each time."""
        return [str(self.folder / "*")] * self.times


def threads(read: Callable[[Work], float]) -> Callable[[Cell], Figures]:
    """Return a pass of plain threads."""

    def one_pass(cell: Cell) -> Figures:
        before = _used()
        for _ in range(cell.times):
            read(cell.work)
        return _figures(cell, before, len(cell.work.paths) * cell.times)

    return one_pass


def through(make: Callable[[Cell], asd.Dataset[Any]]) -> Callable[[Cell], Figures]:
    """Return a pass that iterates over a dataset and drops its elements."""

    def one_pass(cell: Cell) -> Figures:
        files = len(cell.work.paths) * cell.times
        with make(cell).open() as loader:
            elements = iter(loader)
            first = next(elements)
            before = _used()
            count = sum(1 for _ in chain([first], elements))
            if count != files:
                raise RuntimeError(f"{count} elements were read of {files} files")
            return _figures(cell, before, files)

    return one_pass


WAYS: dict[str, Callable[[Cell], Figures]] = {
    "threads + preadv": threads(thread_pass),
    "threads + pread": threads(bytes_pass),
    "from_files": through(lambda cell: asd.Dataset.from_files(cell.patterns)),
    "from_fixed_length": through(lambda cell: asd.Dataset.from_fixed_length(cell.patterns, cell.work.nbytes)),
    "from_fixed_length cycle": through(
        lambda cell: asd.Dataset.from_fixed_length(
            cell.patterns, cell.work.nbytes, cycle_length=min(cell.work.at_once, len(cell.work.paths))
        )
    ),
}


def _used() -> tuple[float, float, int]:
    return perf_counter(), process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _figures(cell: Cell, before: tuple[float, float, int], files: int) -> Figures:
    wall, cpu, faults = (now - then for now, then in zip(_used(), before, strict=True))
    gigabytes = files * cell.work.nbytes / 1e9
    return {
        "files/s": files / wall,
        "MB/s": gigabytes * 1e3 / wall,
        "cpu_s_per_GB": cpu / gigabytes,
        "faults_per_MiB": faults / (gigabytes * 1e9 / (1 << 20)),
    }


def main() -> None:
    """Print a table, and write the figures where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "aiostream_data_local_datasets")
    parser.add_argument("--total-mib", type=int, default=64)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, dict[str, Figures]] = {}
    runs: dict[str, dict[str, list[Figures]]] = {}
    for name, nbytes in SIZES.items():
        folder = options.data / name.replace(" ", "")
        paths = write_files(folder, nbytes, options.total_mib << 20)
        for at_once in AT_ONCE:
            column = f"{name}, c={at_once}"
            cell = Cell(folder, Work(paths, nbytes, at_once, Buffers(nbytes, at_once)), options.times)
            passes: dict[str, list[Figures]] = {way: [] for way in WAYS}
            for _ in range(options.repetitions):
                for way, one_pass in WAYS.items():
                    passes[way].append(one_pass(cell))
            runs[column] = passes
            found[column] = {
                way: {figure: round(median(one[figure] for one in each), 3) for figure in each[0]}
                for way, each in passes.items()
            }
            _show(column, found[column])
    if options.out is not None:
        result = {
            "scenario": "local_datasets",
            "title": "local files in the page cache through a Dataset",
            "circumstances": circumstances(),
            "parameters": {name: getattr(options, name) for name in ("total_mib", "times", "repetitions")},
            "median": found,
            "runs": runs,
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def _show(column: str, ways: dict[str, Figures]) -> None:
    print(f"\n{column:28}{'files/s':>10}{'MB/s':>10}{'CPU s/GB':>12}{'faults/MiB':>12}")
    for way, figures in ways.items():
        print(f"{way:28}{figures['files/s']:10,.0f}{figures['MB/s']:10,.0f}", end="")
        print(f"{figures['cpu_s_per_GB']:12.2f}{figures['faults_per_MiB']:12.1f}")


if __name__ == "__main__":
    main()
