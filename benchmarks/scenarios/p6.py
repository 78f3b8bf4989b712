"""P6: user functions of three kinds: busy in Python, busy without the GIL, and waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.compare.p6_functions import checksums, spun
from benchmarks.scenario import NATIVE, OURS, Contender, Scenario
from benchmarks.workload import Workload, batches_of_numbers, tally_numbers

TORCH, TF, GRAIN, SPDL = ("torch",), ("tensorflow-cpu",), ("grain",), ("spdl", "spdl_core")


def _expected(function: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Callable[[Workload], Iterator[Any]]:
    return lambda workload: map(function, batches_of_numbers(workload.rows))


def _scenario(
    key: str,
    title: str,
    rows: int,
    function: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    contenders: tuple[Contender, ...],
) -> Scenario:
    return Scenario(
        key=key,
        title=title,
        unit="elements/s",
        rows=rows,
        warm_up_rows=2_560,
        work=lambda rows, data: Workload(rows=rows),
        expected=_expected(function),
        tally=tally_numbers,
        check=tally_numbers,
        contenders=contenders,
    )


P6A = _scenario(
    "p6a",
    "a pure-Python function of 20 us in two processes, batch(256)",
    400_000,
    spun,
    (
        Contender(
            name=OURS,
            module="p6_aiostream_data",
            how='range, map(spin, executor="process", concurrency=2), batch',
            packages=NATIVE,
            variant="spin",
        ),
        Contender(
            name="torch DataLoader",
            module="p6_torch",
            how="2 worker processes, __getitems__ by list(map()), collate_fn=np.asarray",
            packages=TORCH,
            variant="spin 2",
        ),
        Contender(
            name="Grain",
            module="p6_grain",
            how="MapDataset.range, map, batch, to_iter_dataset, mp_prefetch with 2 workers",
            packages=GRAIN,
            variant="spin processes 2",
        ),
        Contender(
            name="SPDL",
            module="p6_spdl",
            how="a source of lists of 256, one pipe over each list in a ProcessPoolExecutor of 2, from a fork server",
            packages=SPDL,
            variant="spin",
        ),
        Contender(
            name="tf.data",
            module="p6_tfdata",
            how="range, batch, map(numpy_function over a batch, 2 at once), prefetch; it has no processes",
            packages=TF,
            variant="spin batch",
        ),
    ),
)

P6B = _scenario(
    "p6b",
    "a function of 200 us that releases the GIL on two threads, batch(256)",
    15_000,
    checksums,
    (
        Contender(
            name=OURS,
            module="p6_aiostream_data",
            how='range, map(checksum, executor="thread", concurrency=2), batch',
            packages=NATIVE,
            variant="checksum",
        ),
        Contender(
            name="tf.data",
            module="p6_tfdata",
            how="range, batch, map(numpy_function over a batch, 2 at once), prefetch",
            packages=TF,
            variant="checksum batch",
        ),
        Contender(
            name="torch DataLoader",
            module="p6_torch",
            how="2 worker processes (it has no threads), __getitems__ by list(map()), collate_fn=np.asarray",
            packages=TORCH,
            variant="checksum 2",
        ),
        Contender(
            name="Grain",
            module="p6_grain",
            how="MapDataset.range, map, batch, to_iter_dataset with 4 read threads",
            packages=GRAIN,
            variant="checksum threads 4",
        ),
        Contender(
            name="SPDL",
            module="p6_spdl",
            how="a source of lists of 256, one pipe over each list, 2 threads",
            packages=SPDL,
            variant="checksum",
        ),
    ),
)

P6C = _scenario(
    "p6c",
    "a function that waits 20 ms, 256 at once, batch(256); 12,800 elements/s is all there can be",
    25_600,
    lambda numbers: numbers + 1,
    (
        Contender(
            name=OURS,
            module="p6_aiostream_data",
            how="range, map(async nap, concurrency=256), batch",
            packages=NATIVE,
            variant="nap",
        ),
        Contender(
            name="SPDL",
            module="p6_spdl",
            how="range, pipe(async nap, concurrency=256), aggregate(256), pipe(np.asarray)",
            packages=SPDL,
            variant="nap",
        ),
        Contender(
            name="SPDL, gather in the function",
            module="p6_spdl",
            how="a source of lists of 32, pipe(async gather of a list, concurrency=8), aggregate(8), np.concatenate",
            packages=SPDL,
            variant="naps",
        ),
        Contender(
            name="Grain",
            module="p6_grain",
            how="MapDataset.range, map(sleep), to_iter_dataset with 256 read threads, batch; it cannot await",
            packages=GRAIN,
            variant="nap elements 256",
        ),
        Contender(
            name="tf.data",
            module="p6_tfdata",
            how="range, map(numpy_function of sleep, 256 at once on 256 threads), batch, prefetch; it cannot await",
            packages=TF,
            variant="nap element",
        ),
        Contender(
            name="tf.data, gather in the function",
            module="p6_tfdata",
            how="range, batch, map(numpy_function of asyncio.run(gather) over a batch), prefetch",
            packages=TF,
            variant="naps batch",
        ),
        Contender(
            name="torch DataLoader, gather in the function",
            module="p6_torch",
            how="no equivalent: asyncio.run(gather) over a batch in __getitems__, 0 workers (faster than 1 or 2)",
            packages=TORCH,
            variant="naps 0",
        ),
    ),
)
