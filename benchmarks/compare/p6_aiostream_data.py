"""P6 with this package: ``map``, told where the function runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import aiostream_data as asd
from benchmarks.compare.p6_functions import NAPS_AT_ONCE, checksum, nap, spin
from benchmarks.workload import BATCH_SIZE, Workload

WORKERS = 2


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays; ``variant`` names the function, and whether the order of its results matters."""
    numbers = asd.Dataset.range(workload.rows)
    match variant:
        case "spin":
            mapped = numbers.map(spin, executor="process", concurrency=WORKERS)
        case "checksum":
            mapped = numbers.map(checksum, executor="thread", concurrency=WORKERS)
        case _:
            mapped = numbers.map(nap, concurrency=NAPS_AT_ONCE, ordered=variant != "nap, any order")
    with mapped.batch(BATCH_SIZE).prefetch(8).open() as loader:
        yield from loader
