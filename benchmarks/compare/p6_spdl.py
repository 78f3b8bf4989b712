"""P6 with SPDL: a pool of processes, threads, or coroutines."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spdl.pipeline import PipelineBuilder

from benchmarks.compare.p6_functions import NAPS_AT_ONCE, checksum, nap, naps, spin
from benchmarks.workload import BATCH_SIZE, Workload

WORKERS = 2
PART = 32
"""Naps of one task, where each task takes several."""


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays; ``variant`` is the function, and for naps whether a task takes one number or some."""
    if variant == "spin":
        with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("forkserver")) as pool:
            builder = PipelineBuilder().add_source(_lists(workload.rows, BATCH_SIZE))
            yield from _run(builder.pipe(_spun, concurrency=2 * WORKERS, executor=pool))
    elif variant == "checksum":
        builder = PipelineBuilder().add_source(_lists(workload.rows, BATCH_SIZE))
        yield from _run(builder.pipe(_checksums, concurrency=WORKERS))
    elif variant == "nap":
        builder = PipelineBuilder().add_source(range(workload.rows)).pipe(nap, concurrency=NAPS_AT_ONCE)
        yield from _run(builder.aggregate(BATCH_SIZE).pipe(np.asarray))
    else:
        builder = PipelineBuilder().add_source(_lists(workload.rows, PART)).pipe(naps, concurrency=NAPS_AT_ONCE // PART)
        yield from _run(builder.aggregate(BATCH_SIZE // PART).pipe(np.concatenate))


def _run(builder: Any) -> Iterator[Any]:
    pipeline = builder.add_sink(8).build(num_threads=WORKERS)
    with pipeline.auto_stop():
        yield from pipeline


def _lists(rows: int, size: int) -> Iterator[list[int]]:
    numbers = iter(range(rows))
    while part := list(islice(numbers, size)):
        yield part


def _spun(numbers: list[int]) -> NDArray[np.int64]:
    return np.fromiter(map(spin, numbers), np.int64, len(numbers))


def _checksums(numbers: list[int]) -> NDArray[np.int64]:
    return np.fromiter(map(checksum, numbers), np.int64, len(numbers))
