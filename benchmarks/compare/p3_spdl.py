"""P3 with SPDL: a pool of threads, and batches put together in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from spdl.pipeline import PipelineBuilder

from benchmarks.compare.p3_function import load
from benchmarks.images import IMAGE_BATCH, WORKERS
from benchmarks.workload import Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; ``variant`` says whether a task loads an image, or a batch of them."""
    paths = [str(path) for path in workload.paths]
    if variant == "batches":
        lists = [paths[first : first + IMAGE_BATCH] for first in range(0, len(paths), IMAGE_BATCH)]
        builder: Any = PipelineBuilder().add_source(lists).pipe(_loaded, concurrency=WORKERS)
    else:
        builder = (
            PipelineBuilder().add_source(paths).pipe(load, concurrency=WORKERS).aggregate(IMAGE_BATCH).pipe(_stacked)
        )
    pipeline = builder.add_sink(4).build(num_threads=WORKERS)
    with pipeline.auto_stop():
        yield from pipeline


def _loaded(paths: list[str]) -> dict[str, Any]:
    return _stacked([load(path) for path in paths])


def _stacked(images: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.stack([image[name] for image in images]) for name in ("image", "label")}
