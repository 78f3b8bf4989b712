"""The ceiling of P3: the function in a bare pool of threads, without batches."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.compare.p3_function import load
from benchmarks.images import WORKERS
from benchmarks.workload import Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays, one image at a time."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for image in pool.map(load, map(str, workload.paths)):
            yield {"image": image["image"][None], "label": np.array([image["label"]])}
