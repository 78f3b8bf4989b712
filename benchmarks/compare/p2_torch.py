"""P2 with PyTorch's DataLoader, fetching a batch of indices at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.compare.p2_function import add_one
from benchmarks.workload import BATCH_SIZE, Workload


class Numbers:
    """Maps every index."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> int:
        return add_one(index)

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [add_one(index) for index in indices]


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays; ``variant`` is the number of worker processes."""
    loader = DataLoader(
        Numbers(workload.rows), batch_size=BATCH_SIZE, num_workers=int(variant or 0), collate_fn=np.asarray
    )
    yield from loader
