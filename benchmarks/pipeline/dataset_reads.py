"""P4d: reading objects through a Dataset with its defaults, beside the clients of object stores and other loaders.

``python -m benchmarks.pipeline.dataset_reads [--quick] [--sizes ...] [--latencies ...] [--concurrency ...]
[--schemes ...] [--only NAME ...] [--runs 5] [--seconds 0.25] [--out p4d.json] [--resume]``

A cell is one object size, latency, number of concurrent requests, and plain HTTP or TLS. In every cell each contender
runs in its own process. It reads some objects whose count, bytes and checksum are compared, and then a warm-up pass,
which shows the number of objects that it reads in ``--seconds``. Then the contenders take turns. The results are
medians with minimum and maximum. CPU seconds include all threads and child processes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from benchmarks.machine import circumstances
from benchmarks.pipeline.cloud_server import Servers, serving
from benchmarks.pipeline.cloud_work import BUCKET
from benchmarks.pipeline.dataset_cells import (
    AT_ONCE,
    CLIENT,
    CONTENDERS,
    LATENCIES_MS,
    OURS,
    Cell,
    Contender,
    Work,
    all_cells,
)
from benchmarks.pipeline.dataset_objects import GZIP, LAYOUTS, MIB, SIZES, Objects
from benchmarks.pipeline.dataset_table import cell_table
from benchmarks.pipeline.forked import ForkedProcess, forked_processes

T = TypeVar("T")

RUNS = 5
SCHEMES = ("plain", "tls")

QUICK: dict[str, list[Any]] = {
    "sizes": ["4KiB", "1MiB"], "latencies": [0, 20], "concurrency": ["16", "defaults"], "schemes": ["plain"],
}  # fmt: skip
QUICK_RUNS = 2

CHECKED_OBJECTS, CHECKED_NBYTES = 512, 128 * MIB
"""Maximum number and bytes of the objects whose checksum is compared."""

LEAST_ROUNDS, CLIENT_NBYTES = 2, 1_024 * MIB
"""A pass of a client has at least this number of requests for each concurrent one, up to so many bytes."""

LEAST_NBYTES, GZIP_NBYTES = 256 * MIB, 128 * MIB
"""A pass of any other contender has an object for each concurrent request, up to so many bytes."""

SHORT = 4
"""A short pass reads at least this part (1/4) of the objects."""

DIFFERENCES = ("wall_s", "cpu_s", "objects", "nbytes")
"""Fields of a pass from which those of a short pass are subtracted."""

LARGE_NBYTES = 8 * MIB
"""Datasets of such objects run longer passes."""

DEFAULT_AT_ONCE = 16
"""Assumed number of concurrent requests of a dataset without arguments, for the length of the first pass."""

CALIBRATIONS = 4
"""Maximum number of passes that determine the number of objects of a timed pass. The last one is the warm-up."""

ACCEPTED = 2
"""The number of objects is accepted if the warm-up pass was at least half as long as it should be."""


class Running:
    """A contender in the current cell.

    Attributes:
        objects: Number of objects of a timed pass.
        runs: Measurements of all timed passes.
    """

    def __init__(self, contender: Contender, process: ForkedProcess) -> None:
        self.contender = contender
        self.process = process
        self.objects = 0
        self._at_once = 0
        self._size = ""
        self.runs: list[dict[str, float]] = []

    def open(self, cell: Cell, work: Work, seconds: float) -> None:
        """Start the child of a cell, check what it reads, and determine the number of objects of a pass."""
        self._at_once = work.at_once
        at_once = work.at_once or DEFAULT_AT_ONCE
        wanted_s = seconds * pass_length(self.contender, cell)
        most = work.objects.names
        least = min(most, least_objects(self.contender, cell, at_once))
        if self._size != cell.size:
            self._size, self.objects = cell.size, least
        request = self.process.request
        if request(json.dumps(work.data())) is None or request(f"check {checked_objects(cell, at_once)}") is None:
            return
        fastest = 0.0
        for turn in range(CALIBRATIONS):
            warm_up = request(f"pass {max(least, self.objects)}")
            if warm_up is None:
                return
            fastest = max(fastest, warm_up["objects"] / warm_up["wall_s"])  # a first pass can be slow
            self.objects = next_objects(warm_up["objects"], fastest * wanted_s, least, most)
            if turn and self.objects <= ACCEPTED * warm_up["objects"]:
                return

    def run(self, servers: Servers) -> None:
        """Run one timed pass. A dataset first runs a short one, which shows what opening a loader costs."""
        short = None
        if self.contender.group == OURS and self.objects > 1:
            short = self.process.request(f"pass {short_objects(self.objects, self._at_once)}")
        before = servers.busy_s()
        measured = self.process.request(f"pass {self.objects}")
        if measured is not None:
            added = {f"short_{name}": short[name] for name in DIFFERENCES} if short else {}
            self.runs.append({**measured, **added, "server_cpu_s": servers.busy_s() - before})


def pass_length(contender: Contender, cell: Cell) -> float:
    """Return the length of a pass, in ``--seconds``.

    A client is already open. A dataset of large objects needs longer, because it first fills its buffers.
    """
    if contender.group == CLIENT:
        return 0.5
    return 2.0 if contender.group == OURS and cell.object_nbytes >= LARGE_NBYTES else 1.0


def least_objects(contender: Contender, cell: Cell, at_once: int) -> int:
    """Return the minimum number of objects of a pass, so that all concurrent requests have work."""
    nbytes = at_once * (contender.part_nbytes or cell.object_nbytes)
    if contender.group == CLIENT and contender.layout != GZIP:
        return max(1, min(LEAST_ROUNDS * nbytes, CLIENT_NBYTES) // cell.object_nbytes)
    return max(1, min(nbytes, GZIP_NBYTES if contender.layout == GZIP else LEAST_NBYTES) // cell.object_nbytes)


def short_objects(objects: int, at_once: int) -> int:
    """Return the number of objects of a short pass: a quarter, or as many as are read at once, but at most a half."""
    return max(1, objects // SHORT, min(at_once, objects // 2))


def checked_objects(cell: Cell, at_once: int) -> int:
    """Return the number of objects whose checksum is compared."""
    return max(1, min(CHECKED_OBJECTS, 8 * at_once + 16, CHECKED_NBYTES // cell.object_nbytes))


def next_objects(objects: int, wanted: float, least: int, most: int) -> int:
    """Return the number of objects of the next pass, after one over ``objects``: about ``wanted``, within limits.

    A short pass shows little, so the number grows to at most the sixteenfold.
    """
    return max(least, min(most, round(wanted), 16 * objects))


def measure(cell: Cell, servers: Servers, all_running: Sequence[Running], root: Path, options: Any) -> dict[str, Any]:
    """Return the result of one cell."""
    place = servers.places.get((cell.tls, cell.latency_ms))
    running = [each for each in all_running if each.contender.takes_part(cell)]
    not_installed = {each.contender.name: each.process.error for each in running}
    for each in running:
        each.runs = []
        if place is None:
            each.process.error = f"no such server: {servers.how}"
            continue
        contender = each.contender
        work = Work(
            contender.objects(cell), place, root, contender.at_once(cell), contender.variant, contender.part_nbytes
        )
        each.open(cell, work, options.seconds)
    for turn in range(options.runs):
        for each in rotated(running, turn):
            each.run(servers)
    result = {"cell": cell.name, **vars(cell), "date": datetime.now(UTC).isoformat(timespec="seconds")}
    result["load_average"] = round(os.getloadavg()[0], 2)
    result["contenders"] = {each.contender.name: summary(each.runs, each.process.error) for each in running}
    for each in running:
        each.process.end_cell()
        each.process.error = not_installed[each.contender.name]
    return result


def rotated(running: Sequence[T], turn: int) -> list[T]:
    """Return the contenders with another one first in every turn, because the first pass after a pause is slower."""
    first = turn % len(running) if running else 0
    return [*running[first:], *running[:first]]


def summary(runs: Sequence[dict[str, float]], error: str | None) -> dict[str, Any]:
    """Return medians, minimum, maximum, and every run."""
    if not runs or error is not None:
        return {"error": error or "no run"}
    steady = without_start(runs)
    rates = sorted(run["objects"] / run["wall_s"] for run in steady)
    return {
        "objects_per_s": round(median(rates), 1),
        "objects_per_s_from_to": [round(rates[0], 1), round(rates[-1], 1)],
        "objects_per_s_with_start": round(median(run["objects"] / run["wall_s"] for run in runs), 1),
        "first_s": round(median(run["first_s"] for run in runs), 4),
        "mb_per_s": round(median(run["nbytes"] / run["wall_s"] for run in steady) / 1e6, 1),
        "cpu_us_per_object": round(median(run["cpu_s"] / run["objects"] for run in steady) * 1e6, 1),
        "cpu_s_per_gb": round(median(run["cpu_s"] / run["nbytes"] for run in steady) * 1e9, 4),
        "server_cores": round(median(run["server_cpu_s"] / run["wall_s"] for run in runs), 3),
        "runs": [{name: round(value, 6) for name, value in run.items()} for run in runs],
    }


def without_start(runs: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Return seconds, objects and bytes of each pass, less the median of the short passes.

    The difference leaves out what a loader needs once: to open, to fill its buffers, to end. A pass of a benchmark
    takes a second, so this time would count too much. The remaining seconds are at least half of those that the
    remaining objects take in the whole pass, because a busy machine can make a short pass slow.
    """
    if not all("short_wall_s" in run for run in runs):
        return [{name: run[name] for name in DIFFERENCES} for run in runs]
    short = {name: median(run[f"short_{name}"] for run in runs) for name in DIFFERENCES}
    found = []
    for run in runs:
        left = {name: run[name] - short[name] for name in DIFFERENCES}
        for name in ("wall_s", "cpu_s"):
            left[name] = max(left[name], run[name] * left["objects"] / run["objects"] / 2)
        found.append(left)
    return found


@contextmanager
def served_objects(size: str, root: Path) -> Iterator[Servers]:
    """Write all objects of one size and serve them for the block."""
    layouts = [Objects(size, layout) for layout in LAYOUTS]
    for each in layouts:
        each.write(root)
    try:
        with serving(root / BUCKET) as servers:
            yield servers
    finally:
        for each in layouts:
            each.delete(root)


def chosen_cells(options: argparse.Namespace) -> list[Cell]:
    """Return the cells that the command line selects."""
    at_once = [0 if name == "defaults" else int(name) for name in options.concurrency]
    return [
        cell
        for cell in all_cells()
        if cell.size in options.sizes
        and cell.latency_ms in options.latencies
        and cell.at_once in at_once
        and ("tls" if cell.tls else "plain") in options.schemes
    ]


def merged(old: Iterable[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all results in the order of the table, with ``new`` in the place of an older result of its cell."""
    by_name = {each["cell"]: each for each in (*old, new)}
    return [by_name[cell.name] for cell in all_cells() if cell.name in by_name]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a few cells with two runs, in less than five minutes")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--latencies", nargs="+", type=int, choices=LATENCIES_MS, default=list(LATENCIES_MS))
    names = [*map(str, AT_ONCE), "defaults"]
    parser.add_argument("--concurrency", nargs="+", choices=names, default=names)
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of contenders, or their beginnings")
    parser.add_argument("--runs", type=int, default=RUNS, help="timed passes of each contender")
    parser.add_argument(
        "--seconds", type=float, default=0.4, help="length of a pass of a loader; half of it for clients"
    )
    parser.add_argument("--out", type=Path, help="file of the results; cells of other runs in it are kept")
    parser.add_argument("--resume", action="store_true", help="skip cells that --out has from the same commit")
    options = parser.parse_args()
    if options.quick:
        vars(options).update(QUICK, runs=QUICK_RUNS)
    if options.resume and options.out is None:
        parser.error("--resume needs --out")
    return options


def main() -> None:
    """Measure the selected cells, print a table of each, and write all runs to ``--out``."""
    options = _options()
    result: dict[str, Any] = {"scenario": "p4d", "title": "reading through a Dataset", "cells": []}
    if options.out is not None and options.out.exists():
        result = json.loads(options.out.read_text())
    at = result["circumstances"] = circumstances()
    done = {each["cell"] for each in result["cells"] if each["commit"] == at["commit"]} if options.resume else set()
    cells = [cell for cell in chosen_cells(options) if cell.name not in done]
    chosen = [
        each
        for each in CONTENDERS
        if any(map(each.takes_part, cells)) and (not options.only or each.name.startswith(tuple(options.only)))
    ]
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="aiostream-datasets-", dir=memory if memory.is_dir() else None) as folder,
        forked_processes("benchmarks.pipeline.dataset_reader", [each.name for each in chosen]) as processes,
    ):
        running = [Running(*pair) for pair in zip(chosen, processes, strict=True)]
        versions = {name: version for each in processes for name, version in each.versions.items()}
        result["versions"] = dict(sorted({**result.get("versions", {}), **versions}.items()))
        result["how"] = {each.name: each.how for each in CONTENDERS}
        for size, of_size in groupby(cells, key=lambda cell: cell.size):
            with served_objects(size, Path(folder)) as servers:
                result["server"] = servers.how
                for cell in of_size:
                    began = time.monotonic()
                    measured = measure(cell, servers, running, Path(folder), options)
                    measured |= {"commit": at["commit"], "runs": options.runs, "seconds": options.seconds}
                    result["cells"] = merged(result["cells"], measured)
                    print(cell_table(measured), flush=True)
                    print(f"({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
                    if options.out is not None:  # an interrupted run keeps its finished cells
                        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
