"""P2: a function that costs next to nothing, over numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scenario import NATIVE, OURS, Contender, Scenario
from benchmarks.workload import Workload, batches_of_numbers, tally_numbers


def _work(rows: int, data: Path) -> Workload:
    return Workload(rows=rows)


def _expected(workload: Workload) -> Iterator[Any]:
    return (numbers + 1 for numbers in batches_of_numbers(workload.rows))


P2 = Scenario(
    key="p2",
    title="a trivial map (x + 1) over integers, batch(256)",
    unit="elements/s",
    rows=1_000_000,
    warm_up_rows=20_000,
    work=_work,
    expected=_expected,
    tally=tally_numbers,
    check=tally_numbers,
    contenders=(
        Contender(name=OURS, module="p2_aiostream_data", how="range, map(x + 1), batch", packages=NATIVE),
        Contender(
            name="plain generator",
            module="p2_generator",
            how="map() in the caller's thread, a list of 256, np.array",
            packages=("numpy",),
            variant="plain",
        ),
        Contender(
            name="ceiling: tightest loop",
            module="p2_generator",
            how="map() in the caller's thread, islice of 256, np.fromiter",
            packages=("numpy",),
            variant="tight",
        ),
        Contender(
            name="torch DataLoader, 0 workers",
            module="p2_torch",
            how="__getitems__ by list comprehension, collate_fn=np.asarray",
            packages=("torch",),
            variant="0",
        ),
        Contender(
            name="torch DataLoader, 2 workers",
            module="p2_torch",
            how="the same in two worker processes",
            packages=("torch",),
            variant="2",
        ),
        Contender(
            name="tf.data",
            module="p2_tfdata",
            how="range, map, batch(AUTOTUNE), prefetch; the function is a TensorFlow graph",
            packages=("tensorflow-cpu",),
            variant="per element",
        ),
        Contender(
            name="tf.data, batch first",
            module="p2_tfdata",
            how="range, batch(AUTOTUNE), map(AUTOTUNE) over whole batches, prefetch",
            packages=("tensorflow-cpu",),
            variant="batch first",
        ),
        Contender(
            name="aiostream_data, batched",
            module="p2_aiostream_data",
            how="range, map(x + 1, batched=True), batch",
            packages=NATIVE,
            variant="batched",
        ),
        Contender(
            name="Grain",
            module="p2_grain",
            how="MapDataset.range, map, batch, to_iter_dataset with 2 read threads",
            packages=("grain",),
        ),
        Contender(
            name="SPDL",
            module="p2_spdl",
            how="a source of lists of 256, one pipe over each list, 2 threads",
            packages=("spdl", "spdl_core"),
        ),
    ),
)
