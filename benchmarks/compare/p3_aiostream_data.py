"""P3 with this package: ``map`` on threads, as the libraries release the GIL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import aiostream_data as asd
from benchmarks.compare.p3_function import load
from benchmarks.images import IMAGE_BATCH, WORKERS
from benchmarks.workload import Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; ``variant`` says in whose process they are made."""
    paths = [str(path) for path in workload.paths]
    dataset = asd.Dataset.from_iterable(paths).map(load, concurrency=WORKERS).batch(IMAGE_BATCH)
    if variant == "in_subprocess":
        dataset = dataset.in_subprocess()
    with dataset.prefetch(4).open() as loader:
        yield from loader
