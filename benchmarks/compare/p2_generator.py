"""The bar of P2: plain Python in the caller's own thread, in its fastest form."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.compare.p2_function import add_one
from benchmarks.workload import BATCH_SIZE, Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays."""
    numbers = map(add_one, range(workload.rows))
    while rows := list(islice(numbers, BATCH_SIZE)):
        yield np.fromiter(rows, np.int64, len(rows))
