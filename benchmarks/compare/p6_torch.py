"""P6 with PyTorch's DataLoader: worker processes that fetch a batch of indices at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.compare.p6_functions import FUNCTIONS, NAPS_AT_ONCE, naps
from benchmarks.workload import BATCH_SIZE, Workload


class Results:
    """Gives a function's results by index."""

    def __init__(self, rows: int, function: str, workers: int) -> None:
        self.rows = rows
        self.function = function
        self.naps_at_once = NAPS_AT_ONCE // max(1, workers)

    def __len__(self) -> int:
        return self.rows

    def __getitems__(self, indices: list[int]) -> list[int]:
        if self.function == "naps":
            return asyncio.run(naps(indices, self.naps_at_once))
        return list(map(FUNCTIONS[self.function], indices))


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays; ``variant`` is the function and the number of worker processes."""
    function, workers = (variant or "spin 2").split()
    results: Any = Results(workload.rows, function, int(workers))
    yield from DataLoader(results, batch_size=BATCH_SIZE, num_workers=int(workers), collate_fn=np.asarray)
