"""Measure lists of very many shards and mixtures of very many inputs: ``python -m benchmarks.micro.many_inputs``.

The first table has one row: memory per shard and seconds to the first batch, for local files of 12 bytes, beside a bare
loop that lists them and asks for their sizes. The second table has a row for each number of inputs of a mixture. Each
input repeats a few small shards; "starting" is the time until each input gave a row. A child process measures each row.
``--out`` writes the figures as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
from asyncio import Task
from pathlib import Path
from time import perf_counter, process_time

from aiostream_data import Dataset
from benchmarks.machine import circumstances, versions_of

INPUTS = (10, 100, 1000)
SHARDS_OF_AN_INPUT = 4
ROWS_OF_A_SHARD = 64
ROW_NBYTES = 128
BATCH = 32

Figures = dict[str, float]


def shards_row(folder: Path, shards: int) -> Figures:
    """Return what a list of so many local files costs, up to the first batch."""
    for number in range(shards):
        (folder / f"shard-{number:06}.bin").write_bytes(b"0123456789ab")
    list(Dataset.from_fixed_length(f"{folder}/shard-00000?.bin", 12).batch(2))  # imports
    began = perf_counter()
    nbytes = sum(entry.stat().st_size for entry in os.scandir(folder))
    listing_s = perf_counter() - began
    gc.collect()
    before, began = resident_nbytes(), perf_counter()
    with Dataset.from_fixed_length(f"{folder}/*.bin", 12).batch(BATCH).open() as loader:
        next(iter(loader))
        first_s = perf_counter() - began
        held = resident_nbytes() - before
    found = {"shards": nbytes / 12, "bytes_per_shard": held / shards}
    return found | {"listing_s": listing_s, "first_batch_s": first_s}


def mixture_row(folder: Path, inputs: int, seconds: float) -> Figures:
    """Return the rate of a mixture of so many inputs, and what it holds."""
    plans = []
    for number in range(inputs):
        (folder / f"{number:04}").mkdir()
        for shard in range(SHARDS_OF_AN_INPUT):
            (folder / f"{number:04}" / f"{shard}.bin").write_bytes(os.urandom(ROWS_OF_A_SHARD * ROW_NBYTES))
        plans.append(Dataset.from_fixed_length(f"{folder}/{number:04}/*.bin", ROW_NBYTES).repeat())
    list(plans[0].take(1))  # imports
    before, began = resident_nbytes(), perf_counter()
    with Dataset.sample_from(plans).batch(BATCH).open() as loader:
        batches = iter(loader)
        next(batches)
        first_s = perf_counter() - began
        for _ in range(inputs // BATCH):
            next(batches)
        starting_s = perf_counter() - began
        began, cpu, rows = perf_counter(), process_time(), 0
        while perf_counter() - began < seconds:
            next(batches)
            rows += BATCH
        wall_s, cpu_s = perf_counter() - began, process_time() - cpu
        found = {"inputs": inputs, "first_batch_s": first_s, "starting_s": starting_s, "rows_per_s": rows / wall_s}
        found |= {"cpu_us_per_row": cpu_s / rows * 1e6, "threads": threading.active_count()}
        tasks = sum(isinstance(each, Task) and not each.done() for each in gc.get_objects())
        return found | {"tasks": tasks, "mib": (resident_nbytes() - before) / (1 << 20)}


def resident_nbytes() -> int:
    """Return the memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_a_child(*arguments: str) -> Figures:
    """Measure one row in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.micro.many_inputs", *arguments]
    found: Figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each mixture")
    parser.add_argument("--folder", help="in which the files are made and deleted")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row is not None:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            inputs = int(given.row)
            row = mixture_row(Path(folder), inputs, given.seconds) if inputs else shards_row(Path(folder), given.shards)
        print(json.dumps(row))
        return
    where = ["--folder", given.folder] if given.folder else []
    shards = in_a_child("--row", "0", "--shards", str(given.shards), *where)
    print(shards)
    mixtures = [in_a_child("--row", str(inputs), "--seconds", str(given.seconds), *where) for inputs in INPUTS]
    for row in mixtures:
        print(row)
    if given.out is not None:
        found = {"shards": shards, "mixtures": mixtures, "versions": versions_of(["numpy"]), "machine": circumstances()}
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
