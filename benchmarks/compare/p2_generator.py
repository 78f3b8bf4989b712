"""P2 without a loader, in the caller's own thread: as one would write it, and in the tightest form there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.compare.p2_function import add_one
from benchmarks.workload import BATCH_SIZE, Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays."""
    return _tight(workload.rows) if variant == "tight" else _plain(workload.rows)


def _plain(rows: int) -> Iterator[NDArray[np.int64]]:
    batch = []
    for number in map(add_one, range(rows)):
        batch.append(number)
        if len(batch) == BATCH_SIZE:
            yield np.array(batch)
            batch = []
    if batch:
        yield np.array(batch)


def _tight(rows: int) -> Iterator[NDArray[np.int64]]:
    numbers = map(add_one, range(rows))
    while batch := list(islice(numbers, BATCH_SIZE)):
        yield np.fromiter(batch, np.int64, len(batch))
