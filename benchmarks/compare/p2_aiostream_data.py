"""P2 with this package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import aiostream_data as asd
from benchmarks.compare.p2_function import add_one
from benchmarks.workload import BATCH_SIZE, Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays; ``variant`` says whether the function gets single numbers or arrays of them."""
    mapped = asd.Dataset.range(workload.rows).map(add_one, batched=variant == "batched")
    with mapped.batch(BATCH_SIZE).prefetch(8).open() as loader:
        yield from loader
