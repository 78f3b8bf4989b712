"""P6 with Grain: worker processes, or read threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grain
import numpy as np
from numpy.typing import NDArray

from benchmarks.compare.p6_functions import FUNCTIONS, naps
from benchmarks.workload import BATCH_SIZE, Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays; ``variant`` is the function, and "processes" or "threads" of a number, or "gather"."""
    function, kind, workers = (variant or "spin processes 2").split()
    numbers = grain.MapDataset.range(workload.rows)
    if kind == "gather":
        dataset = numbers.batch(BATCH_SIZE).map(_napped).to_iter_dataset(_threads(int(workers)))
    elif kind == "elements":
        dataset = numbers.map(FUNCTIONS[function]).to_iter_dataset(_threads(int(workers))).batch(BATCH_SIZE)
    elif kind == "threads":
        dataset = numbers.map(FUNCTIONS[function]).batch(BATCH_SIZE).to_iter_dataset(_threads(int(workers)))
    else:
        options = grain.MultiprocessingOptions(num_workers=int(workers), per_worker_buffer_size=8)
        made = numbers.map(FUNCTIONS[function]).batch(BATCH_SIZE).to_iter_dataset(_threads(1))
        dataset = made.mp_prefetch(options)
    iterator = iter(dataset)
    yield from iterator
    iterator.close()


def _threads(number: int) -> grain.ReadOptions:
    return grain.ReadOptions(num_threads=number, prefetch_buffer_size=max(8, 2 * number))


def _napped(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(asyncio.run(naps(numbers.tolist())))
