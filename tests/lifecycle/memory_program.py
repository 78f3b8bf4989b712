"""One loader under a memory limit, in a process of its own: prints what it held and what the process grew by.

Usage: ``memory_program.py PLAN LIMIT_MIB SLOW_S FILE...``; the result is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from aiostream_data import Dataset

MIB = 1 << 20


def as_array(record: bytes) -> Any:
    """Return a copy of the record, as decoding would."""
    return np.frombuffer(record, np.uint8).copy()


def shortened(record: bytes) -> bytes:
    return record[: len(record) // 2]


def _halves(record: bytes) -> list[bytes]:
    return [record[: len(record) // 2], record[len(record) // 2 :]]


async def awaited(record: bytes) -> Any:
    await asyncio.sleep(0.001)
    return np.frombuffer(record, np.uint8).copy()


def _slow_array(record: bytes) -> Any:
    time.sleep(0.002)  # so that AUTO runs it on many threads
    return as_array(record)


def _records_of(path: str) -> Dataset[bytes]:
    return Dataset.from_tfrecord([path], cycle_length=1)


class Records:
    """Iterates over the records of files, read by another loader with hardly any memory of its own."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def __iter__(self) -> Iterator[bytes]:
        for path in self._paths:
            with open(path, "rb") as file:
                while header := file.read(12):
                    yield file.read(int.from_bytes(header[:8], "little") + 4)[:-4]


def _read(paths: Sequence[str]) -> Dataset[Any]:
    return Dataset.from_tfrecord(paths, cycle_length=2)


PLANS: dict[str, Callable[[Sequence[str]], Dataset[Any]]] = {
    "read": _read,
    "read gzip": lambda paths: Dataset.from_tfrecord(paths, cycle_length=4),
    "map on threads": lambda paths: _read(paths).map(_slow_array, executor="thread"),
    "unordered map": lambda paths: _read(paths).map(_slow_array, executor="thread", ordered=False),
    "map in processes": lambda paths: _read(paths).map(shortened, executor="process", concurrency=2),
    "awaited map": lambda paths: _read(paths).map(awaited),
    "shuffle": lambda paths: _read(paths).map(shortened).shuffle(8, seed=1),
    "interleave": lambda paths: Dataset.from_tensor_slices(list(paths)).interleave(_records_of, cycle_length=3),
    "flat_map": lambda paths: _read(paths).flat_map(_halves),
    "zip": lambda paths: Dataset.zip((_read(paths), _read(paths))),
    "mix": lambda paths: Dataset.sample_from([_read(paths), _read(paths)], weights=[0.5, 0.5]),
    "iterable": lambda paths: Dataset.from_iterable(Records(paths)),
    "batch": lambda paths: _read(paths).map(lambda record: record[:65_536]).batch(16),
    "repeat": lambda paths: _read(paths[:1]).repeat(len(paths)),
}


def status(name: str) -> int:
    """Return a number of bytes out of ``/proc/self/status``."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def run(dataset: Dataset[Any], limit: int, slow_s: float) -> dict[str, Any]:
    """Read all of a data set slowly, and return what it took."""
    for _ in dataset.take(2):
        pass  # what is imported and started once in a process is not what a loader holds
    before = status("VmRSS")
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # begin anew with the highest value
    rows = 0
    with dataset.open(memory_limit=limit) as loader:
        for element in loader:
            rows += 1
            del element  # what the consumer keeps is the consumer's
            time.sleep(slow_s)
        memory = loader.stats().memory
    return {
        "rows": rows,
        "peak": memory.peak,
        "holders": {holder: peak for holder, (_, peak) in memory.holders.items()},
        "growth": status("VmHWM") - before,
    }


if __name__ == "__main__":
    warnings.simplefilter("error")
    plan, limit_mib, slow_s, *files = sys.argv[1:]
    print(json.dumps(run(PLANS[plan](files), int(float(limit_mib) * MIB), float(slow_s))))  # noqa: T201 - read by the test
