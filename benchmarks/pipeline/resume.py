"""P9: how soon the first batch comes after a resume at 10, 50 and 90 % of an epoch, against a cold start.

``python -m benchmarks.pipeline.resume --out p9.json``. The Examples of P1 are read from the local disk, and from
there through a store that takes 20 ms to answer; in order, and through a shuffle of 10,000 rows. Each state is
taken by a run that really went there, and goes through JSON. Cold starts and resumes take turns. Timed is from
``open`` to the first batch; how many ranges were asked for until then is counted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from aiostream_data import Dataset, FixedLen
from aiostream_data.storage.local import LocalStore
from aiostream_data.storage.registry import register_store
from aiostream_data.testing.latency_store import LatencyStore
from benchmarks.dataset import default_root, example_files
from benchmarks.machine import circumstances, versions_of
from benchmarks.scenario import NATIVE
from benchmarks.workload import FEATURES, SHUFFLE_BUFFER, Workload

SCHEME = "measured"
LATENCIES_S = {"local disk": 0.0, "20 ms store": 0.02}
FRACTIONS = (0.1, 0.5, 0.9)
BATCH = 256
CYCLE = 8
SEED = 1


@dataclass
class Measured:
    """The files behind ``measured://`` URLs, and what was asked of them.

    Attributes:
        latency_s: Of stores that are opened from now on.
        store: The one that was opened last.
    """

    latency_s: float = 0.0
    store: LatencyStore | None = None

    @contextmanager
    def served(self) -> Iterator[Measured]:
        """Serve the files in the block."""

        def opened(_: Any, run_blocking: Any) -> LatencyStore:
            self.store = LatencyStore(LocalStore(run_blocking), SCHEME, "file", self.latency_s)
            return self.store

        register_store(SCHEME, opened)
        try:
            yield self
        finally:
            register_store(SCHEME, None)


def pipelines(workload: Workload) -> dict[str, Dataset[Any]]:
    """Return what is resumed, by name."""
    features = {"features": FixedLen((FEATURES,), np.float32), "id": FixedLen((), np.int64)}
    urls = [f"{SCHEME}://{path.resolve()}" for path in workload.paths]
    rows: Dataset[Any] = Dataset.from_tfrecord(urls, cycle_length=CYCLE, shuffle_shards=True)
    return {
        "in order": rows.parse_example(features).batch(BATCH),
        f"shuffle({SHUFFLE_BUFFER})": rows.shuffle(SHUFFLE_BUFFER).parse_example(features).batch(BATCH),
    }


def states(dataset: Dataset[Any], rows: int) -> dict[float, dict[str, Any]]:
    """Return the states at the fractions of one epoch, all of one run."""
    found: dict[float, dict[str, Any]] = {}
    with dataset.open(seed=SEED) as loader:
        batches, given = iter(loader), 0
        for fraction in FRACTIONS:
            wanted = int(fraction * rows) // BATCH
            given += sum(1 for _ in islice(batches, wanted - given))
            started = perf_counter()
            state = loader.state_dict()
            taken_s = perf_counter() - started
            found[fraction] = {"state": json.loads(json.dumps(state)), "state_dict_s": taken_s}
    return found


def first_batch_s(measured: Measured, dataset: Dataset[Any], state: Any = None) -> tuple[float, int]:
    """Return the seconds from opening to the first batch, and the ranges that were asked for until then."""
    started = perf_counter()
    with dataset.open(state, seed=SEED) as loader:
        next(iter(loader))
        seconds = perf_counter() - started
        assert measured.store is not None
        return seconds, len(measured.store.ranges)


def measure(measured: Measured, dataset: Dataset[Any], rows: int, repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield one result per store and fraction."""
    measured.latency_s = 0.0
    taken = states(dataset, rows)
    for store, latency_s in LATENCIES_S.items():
        measured.latency_s = latency_s
        cold: list[tuple[float, int]] = []
        resumed: dict[float, list[tuple[float, int]]] = {fraction: [] for fraction in FRACTIONS}
        for _ in range(repetitions):
            cold.append(first_batch_s(measured, dataset))
            for fraction in FRACTIONS:
                resumed[fraction].append(first_batch_s(measured, dataset, taken[fraction]["state"]))
        for fraction, runs in resumed.items():
            cold_s, first_s = (median(seconds for seconds, _ in each) for each in (cold, runs))
            yield {
                "store": store,
                "at": fraction,
                "first_batch_s": [round(seconds, 5) for seconds, _ in runs],
                "cold_first_batch_s": [round(seconds, 5) for seconds, _ in cold],
                "times_cold": round(first_s / cold_s, 2),
                "ranges": median(ranges for _, ranges in runs),
                "cold_ranges": median(ranges for _, ranges in cold),
                "state_nbytes": len(json.dumps(taken[fraction]["state"], separators=(",", ":"))),
                "state_dict_s": round(taken[fraction]["state_dict_s"], 6),
            }


def main() -> None:
    """Measure, print a table, and write the figures where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--data", type=Path, default=default_root())
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    workload = example_files(arguments.data, arguments.rows)
    results: list[dict[str, Any]] = []
    with Measured().served() as measured:
        for name, dataset in pipelines(workload).items():
            for result in measure(measured, dataset, arguments.rows, arguments.repetitions):
                results.append({"pipeline": name, **result})
                print(
                    f"{name:16} {result['store']:12} at {result['at']:4.0%}: {result['times_cold']:5.2f} x cold start, "
                    f"{result['ranges']:4.0f} ranges ({result['cold_ranges']:.0f} cold), "
                    f"state of {result['state_nbytes']:6} bytes in {1e3 * result['state_dict_s']:.2f} ms"
                )
    if arguments.out is not None:
        parameters = {
            "rows": arguments.rows,
            "batch": BATCH,
            "cycle_length": CYCLE,
            "repetitions": arguments.repetitions,
        }
        document = {**circumstances(), "versions": versions_of(NATIVE), "parameters": parameters, "results": results}
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
