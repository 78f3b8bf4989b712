"""One pass over files under a memory limit, in a fresh interpreter: print how much the process grew.

Usage: ``growth_program.py CASE``, where CASE is JSON; ``growth_files.case`` makes it.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

from aiostream_data import Dataset, Loader

MIB = 1 << 20

STABLE_S, READ_S = 0.25, 1.0
"""Read nothing until the loader has been full for so many seconds; then read for so many seconds at most."""


def dataset_of(case: dict[str, Any], files: list[str]) -> Dataset[Any]:
    cycle: dict[str, Any] = {"cycle_length": case["cycle_length"], "compression": case["compression"]}
    match case["format"]:
        case "text":
            return Dataset.from_text(files, encoding=None, **cycle)
        case "tfrecord":
            return Dataset.from_tfrecord(files, **cycle)
        case "fixed_length":
            return Dataset.from_fixed_length(files, case["record_nbytes"], **cycle)
        case "whole_file":
            return Dataset.from_files(files, compression=case["compression"], read_ahead=case["cycle_length"])
    raise AssertionError(case)


def status(name: str) -> int:
    """Return a number of bytes out of ``/proc/self/status``."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def consume(loader: Loader[Any]) -> int:
    """Read slowly until the loader is full, then fast; return the number of elements."""
    count, most, since, began = 0, 0, time.perf_counter(), time.perf_counter()
    for element in loader:
        count += 1
        del element  # the consumer keeps nothing
        while time.perf_counter() - since < STABLE_S and most >= 0:
            if loader.stats().memory.peak > most:
                most, since = loader.stats().memory.peak, time.perf_counter()
            if time.perf_counter() - began > 4 * READ_S:
                break
            time.sleep(0.01)
        if most >= 0:
            most, began = -1, time.perf_counter()
        if time.perf_counter() - began > READ_S:
            break
    return count


def measured(case: dict[str, Any]) -> dict[str, Any]:
    times = 1 if case["record_nbytes"] > MIB else 2
    warm = dataset_of(case, [case["warm"]] * 2 * times)
    for _ in range(times):
        with warm.open(memory_limit=case["limit"]) as loader:
            for _ in loader:
                pass
    dataset = dataset_of(case, [case["file"]] * case["copies"])
    bound = dataset.memory_bound(memory_limit=case["limit"])
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # begin anew with the highest value
    before = status("VmRSS")
    began = time.perf_counter()
    with dataset.open(memory_limit=case["limit"]) as loader:
        count = consume(loader)
        memory = loader.stats().memory
    return {
        "elements": count,
        "seconds": time.perf_counter() - began,
        "growth": status("VmHWM") - before,
        "peak": memory.peak,
        "bound": bound.most_nbytes,
        "rows": bound.rows,
        "holders": {holder: peak for holder, (_, peak) in memory.holders.items()},
    }


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".*more than the memory limit")
    print(json.dumps(measured(json.loads(sys.argv[1]))))  # noqa: T201 - read by the test
