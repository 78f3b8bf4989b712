"""P4: how fast an object store is read, and for how much CPU: our stores beside the other clients, in one run.

``python -m benchmarks.pipeline.cloud [--quick] [--cells ...] [--only NAME ...] [--seconds 0.25] [--out cloud.json]``.
48 cells: 256 KiB objects, 8 MiB ranges and 64 MiB objects; 0 and 20 ms to the first byte; 1, 4, 16 and 64 requests at
once; plain HTTP and TLS. In each, every client is a fresh process. It first reads a few parts whose every byte is held
against what it must be, then as many as show how quick it is, and from then on passes of about ``--seconds``, the
clients taking turns. Quoted are medians; CPU seconds are those of the client with its children, and the server's are
noted beside them. A cell is bound by the server where that uses nine tenths of a core and more.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import circumstances
from benchmarks.pipeline.cloud_client import ENTRANTS, Entrant
from benchmarks.pipeline.cloud_server import Servers, servers
from benchmarks.pipeline.cloud_table import cell_table
from benchmarks.pipeline.cloud_work import Cell, Place, all_cells
from benchmarks.pipeline.forked import ForkedProcess, forked_processes

REPETITIONS = 5
LEAST_ROUNDS = 2
"""Rounds that every cell gets, however long they take; 64 objects of 64 MiB are 4 GB for each client."""

QUICK = (
    "256 KiB objects/plain/0ms/c16",
    "8 MiB ranges/plain/0ms/c4",
    "8 MiB ranges/plain/20ms/c16",
    "256 KiB objects/tls/0ms/c16",
)
"""Cells of a quick run."""

FIRST_PARTS = 2
"""Parts for each request at once of the pass that shows how quick a client is, ..."""

FIRST_NBYTES = 1 << 30
"""... but no more than that, ..."""

CHECKED_NBYTES = 1 << 28
"""... and no more than that of the pass whose bytes are compared."""


@dataclass
class Contestant:
    """A client's process, and what it did in the cell that it is in."""

    entrant: Entrant
    process: ForkedProcess
    parts: int = 0
    runs: list[dict[str, float]] = field(default_factory=list)


@contextmanager
def contestants(entrants: Sequence[Entrant]) -> Iterator[list[Contestant]]:
    """Start a process for each client, which imports it; lend those, also where one is not installed."""
    names = [each.name for each in entrants]
    with forked_processes("benchmarks.pipeline.cloud_client", names) as processes:
        yield [Contestant(*pair) for pair in zip(entrants, processes, strict=True)]


def measure(cell: Cell, running: Servers, clients: Sequence[Contestant], options: argparse.Namespace) -> dict[str, Any]:
    """Return the result of one cell: A B C, A B C, ...; the first two rounds only check and try."""
    place = running.place(cell)
    broken = {each.entrant.name: each.process.error for each in clients}  # not installed: that will not change
    for each in clients:
        each.runs = []
        each.process.error = broken[each.entrant.name] or _why_not(each.entrant, running, place)
        if place is not None:
            _open(each, cell, place, options.seconds)
    deadline = time.monotonic() + options.cell_seconds
    for turn in range(options.repetitions):
        if turn >= LEAST_ROUNDS and time.monotonic() > deadline:
            break
        for each in clients:
            before = running.busy_s()
            told = each.process.request(f"pass {each.parts}")
            if told is not None:
                each.runs.append({**told, "server_cpu_s": running.busy_s() - before})
    result = {"cell": cell.name, **cell.data(), "clients": {each.entrant.name: _summary(each) for each in clients}}
    for each in clients:
        each.process.end_cell()
        each.process.error = broken[each.entrant.name]
    return result


def _why_not(entrant: Entrant, running: Servers, place: Place | None) -> str | None:
    if place is None:
        return f"no such server: {running.how}"
    if entrant.needs_json and not running.json_paths:
        return f"the server does not have the paths that it asks for: {running.how}"
    return None


def _open(client: Contestant, cell: Cell, place: Place, seconds: float) -> None:
    """Have a client opened and checked, and find out how many parts it reads in ``seconds``."""
    if client.process.request(json.dumps({"cell": cell.data(), "place": vars(place)})) is None:
        return
    if client.process.request(f"check {max(1, min(cell.at_once, CHECKED_NBYTES // cell.part_nbytes))}") is None:
        return
    first = max(1, min(FIRST_PARTS * cell.at_once, FIRST_NBYTES // cell.part_nbytes))
    tried = client.process.request(f"pass {first}")
    if tried is not None:
        client.parts = max(cell.at_once, round(first * seconds / tried["wall_s"]))


def _summary(client: Contestant) -> dict[str, Any]:
    """Return medians and spread, and every run."""
    runs = client.runs
    if not runs or client.process.error is not None:
        return {"error": client.process.error or "no run"}
    rates = sorted(run["nbytes"] / run["wall_s"] / 1e6 for run in runs)
    return {
        "mb_per_s": round(median(rates), 1),
        "mb_per_s_from_to": [round(rates[0], 1), round(rates[-1], 1)],
        "requests_per_s": round(median(run["requests"] / run["wall_s"] for run in runs), 1),
        "cpu_s_per_gb": round(median(run["cpu_s"] / run["nbytes"] for run in runs) * 1e9, 4),
        "cpu_us_per_request": round(median(run["cpu_s"] / run["requests"] for run in runs) * 1e6, 1),
        "server_cores": round(median(run["server_cpu_s"] / run["wall_s"] for run in runs), 3),
        "client_cores": round(median(run["cpu_s"] / run["wall_s"] for run in runs), 3),
        "runs": [{name: round(value, 6) for name, value in run.items()} for run in runs],
    }


def chosen_cells(names: Sequence[str], quick: bool) -> list[Cell]:
    """Return the cells whose names have every part of one of ``names``: ``tls/c16`` are all of TLS at 16."""
    cells = all_cells()
    wanted = [*names, *(QUICK if quick and not names else ())]
    return [
        cell
        for cell in cells
        if not wanted or any(set(name.split("/")) <= set(cell.name.split("/")) for name in wanted)
    ]


def main() -> None:
    """Measure what the command line asks for, print the tables, and write every run where it says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="four cells, in less than two minutes")
    parser.add_argument("--cells", nargs="*", default=[], help="such as 'tls/c16', '8 MiB ranges/20ms'")
    parser.add_argument("--only", nargs="*", default=[], help="names of clients; all when not given")
    parser.add_argument("--seconds", type=float, default=0.25, help="of one pass of one client")
    parser.add_argument("--cell-seconds", type=float, default=20.0, help="after so many, no further round of a cell")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    entrants = [each for each in ENTRANTS if not options.only or each.name in options.only]
    cells = chosen_cells(options.cells, options.quick)
    if not cells:
        parser.error(f"there is no such cell; cells are named like {all_cells()[0].name!r}")
    result: dict[str, Any] = {
        "scenario": "p4",
        "title": "reading an object store",
        "circumstances": circumstances(),
        "parameters": {"repetitions": options.repetitions, "seconds": options.seconds},
    }
    with servers() as running, contestants(entrants) as clients:
        result["server"] = running.how
        result["contenders"] = {
            each.entrant.name: {"how": each.entrant.how, "versions": each.process.versions, "error": each.process.error}
            for each in clients
        }
        result["cells"] = []
        for cell in cells:
            began = time.monotonic()
            result["cells"].append(measure(cell, running, clients, options))
            print(cell_table(result["cells"][-1]), flush=True)
            print(f"({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
            if options.out is not None:  # what is there is kept if somebody stops it
                options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
