"""P3 with Grain: read threads, each loading single images, or making whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain

from benchmarks.compare.p3_function import load
from benchmarks.images import IMAGE_BATCH
from benchmarks.workload import Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; ``variant`` is what a thread makes, and the number of threads."""
    unit, threads = (variant or "images 2").split()
    images = grain.MapDataset.source([str(path) for path in workload.paths]).map(load)
    if unit == "batches":
        yield from images.batch(IMAGE_BATCH).to_iter_dataset(_threads(int(threads), 4))
    else:
        yield from images.to_iter_dataset(_threads(int(threads), 4 * IMAGE_BATCH)).batch(IMAGE_BATCH)


def _threads(number: int, buffered: int) -> grain.ReadOptions:
    return grain.ReadOptions(num_threads=number, prefetch_buffer_size=buffered)
