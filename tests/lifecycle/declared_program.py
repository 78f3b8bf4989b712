"""One loader under a memory limit, in a process of its own, for whoever measures it from outside.

Usage: ``declared_program.py PLAN LIMIT_MIB``. Prints a line of JSON with what is declared, waits for a line, reads the
plan slowly for a while, and prints what it held.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from aiostream_data import Dataset, FixedLen, Loader, ShardCache, TFRecordWriter, encode_example

MIB = 1 << 20

TOO_LARGE, HOARDING = "a record larger than the limit", "a function that hoards"
CACHED = "a shard cache in memory"
LARGEST = 100 * MIB
"""Bytes of the largest record of the former."""

FULL_S, READ_S = 0.8, 4.0
"""A loader is read until what it holds has not grown for so many seconds, and for so many at most."""


def _files(folder: Path, records: int, nbytes: int, count: int) -> list[str]:
    paths = []
    for number in range(count):
        path = str(folder / f"{number:03}.tfrecord")
        with TFRecordWriter(path) as writer:
            for record in range(records):
                writer.write(encode_example({"image": bytes(nbytes), "label": record}))
        paths.append(path)
    return paths


FEATURES = {"image": FixedLen((), bytes), "label": FixedLen((), np.int64)}


def parsed(folder: Path) -> Dataset[Any]:
    files = _files(folder, 1_500, 20_000, 4)
    rows = Dataset.from_tfrecord(files, cycle_length=4).parse_example(FEATURES)
    return rows.shuffle(500, seed=1).batch(32).prefetch(2)


def shuffled(folder: Path) -> Dataset[Any]:
    files = _files(folder, 1_000, 80_000, 4)
    rows = Dataset.from_tfrecord(files, cycle_length=2).parse_example(FEATURES)
    return rows.shuffle(900, seed=1).batch(8).prefetch(2)


def nearly_full(folder: Path) -> Dataset[Any]:
    return Dataset.range(6_000).map(awaited_array, concurrency=64).shuffle(600, seed=1).batch(8).prefetch(2)


def large(number: int) -> Any:
    """Return a result of 600 kB, and let other threads run meanwhile."""
    time.sleep(0.002)
    return np.full(150_000, number, np.float32)


def on_threads(folder: Path) -> Dataset[Any]:
    return Dataset.range(4_000).map(large, executor="thread", concurrency=8).batch(8).prefetch(2)


def in_processes(folder: Path) -> Dataset[Any]:
    return Dataset.range(4_000).map(large, executor="process", concurrency=2).batch(8).prefetch(2)


async def awaited_array(number: int) -> Any:
    await asyncio.sleep(0.005)
    return np.full(50_000, number, np.float32)


def awaited(folder: Path) -> Dataset[Any]:
    return Dataset.range(20_000).map(awaited_array, concurrency=256).batch(16).prefetch(2)


def interleaved(folder: Path) -> Dataset[Any]:
    files = _files(folder, 100, 20_000, 64)
    return Dataset.from_tfrecord(files, cycle_length=32).batch(16).prefetch(2)


def elsewhere(folder: Path) -> Dataset[Any]:
    return Dataset.range(4_000).map(large).batch(4).in_subprocess(2).prefetch(2)


def of_length(number: int) -> Any:
    return np.zeros(1_000 + number * 7_919 % 200_000, np.float32)


def padded(folder: Path) -> Dataset[Any]:
    rows = Dataset.range(6_000).map(of_length)
    return rows.bucket_by_sequence_length(len, [50_000, 100_000, 150_000], [16, 8, 4, 4]).prefetch(2)


def on_device(folder: Path) -> Dataset[Any]:
    return Dataset.range(4_000).map(large).batch(8).to_device("cpu")


def one_too_large(folder: Path) -> Dataset[Any]:
    path = str(folder / "large.tfrecord")
    with TFRecordWriter(path) as writer:
        for nbytes in (1_000, LARGEST, 1_000, 100_000) * 2:
            writer.write(bytes(nbytes))
    return Dataset.from_tfrecord([path, path], cycle_length=2)


def cached(folder: Path) -> Dataset[Any]:
    return Dataset.from_tfrecord(_files(folder, 1_500, 20_000, 4), cycle_length=4).batch(128).prefetch(2)


hoard: list[Any] = []


def hoarding(folder: Path) -> Dataset[Any]:
    def keep(number: int) -> int:
        hoard.append(np.ones(1_000_000, np.float64))
        return number

    return Dataset.range(60).map(keep)


PLANS: dict[str, Callable[[Path], Dataset[Any]]] = {
    "parsed, shuffled and batched": parsed,
    "a large shuffle": shuffled,
    "a shuffle that fills the limit": nearly_full,
    "large results on threads": on_threads,
    "large results in processes": in_processes,
    "awaited": awaited,
    "many shards": interleaved,
    "in subprocesses": elsewhere,
    "buckets": padded,
    "slots": on_device,
    CACHED: cached,
    TOO_LARGE: one_too_large,
    HOARDING: hoarding,
}


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201 - read by the test


def status(name: str) -> int:
    """Return a number of bytes out of ``/proc/self/status``."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def slowly(loader: Loader[Any]) -> int:
    """Read elements more slowly than they are made, until the loader is full; return their number."""
    count, most, full, end = 0, 0, 0.0, 0.0
    for element in loader:
        count += 1
        del element  # what the consumer keeps is the consumer's
        time.sleep(0.02)
        now, peak = time.perf_counter(), loader.stats().memory.peak
        end = end or now + READ_S
        if peak > 1.02 * most or not full:
            most, full = peak, now + FULL_S
        if now > min(full, end):
            break
    return count


def run(dataset: Dataset[Any], limit: int, cache: ShardCache | None = None) -> None:
    bound = dataset.memory_bound(memory_limit=limit, shard_cache=cache)
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # begin anew with the highest value
    before = status("VmRSS")
    say(host=bound.host_nbytes, rows=bound.rows, text=str(bound))
    sys.stdin.readline()
    with dataset.open(memory_limit=limit, shard_cache=cache) as loader:
        count = slowly(loader)
        memory = loader.stats().memory
    say(elements=count, peak=memory.peak, growth=status("VmHWM") - before, holders=dict(memory.holders))


if __name__ == "__main__":
    warnings.simplefilter("error")
    if sys.argv[1] == TOO_LARGE:
        warnings.filterwarnings("ignore", ".*more than the memory limit")
    with TemporaryDirectory() as folder:
        cache = ShardCache(limit="96MB", local=True) if sys.argv[1] == CACHED else None
        run(PLANS[sys.argv[1]](Path(folder)), int(sys.argv[2]) * MIB, cache)
