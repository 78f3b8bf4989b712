"""P2 with Grain: batching before the read threads, so that a thread makes a batch and not an element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain

from benchmarks.compare.p2_function import add_one
from benchmarks.workload import BATCH_SIZE, Workload

_OPTIONS = grain.ReadOptions(num_threads=2, prefetch_buffer_size=8)


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays."""
    yield from grain.MapDataset.range(workload.rows).map(add_one).batch(BATCH_SIZE).to_iter_dataset(_OPTIONS)
