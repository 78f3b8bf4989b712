"""P2 with SPDL: the source gives lists of numbers, so that one task maps a whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spdl.pipeline import PipelineBuilder

from benchmarks.compare.p2_function import add_one
from benchmarks.workload import BATCH_SIZE, Workload


def _mapped(numbers: list[int]) -> NDArray[np.int64]:
    return np.fromiter(map(add_one, numbers), np.int64, len(numbers))


def _lists(rows: int) -> Iterator[list[int]]:
    numbers = iter(range(rows))
    while part := list(islice(numbers, BATCH_SIZE)):
        yield part


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays."""
    builder = PipelineBuilder().add_source(_lists(workload.rows)).pipe(_mapped, concurrency=2)
    pipeline = builder.add_sink(8).build(num_threads=2)
    with pipeline.auto_stop():
        yield from pipeline
