"""P1: many small TFRecords from the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.dataset import example_files
from benchmarks.scenario import NATIVE, OURS, Contender, Scenario
from benchmarks.workload import BATCH_SIZE, Workload, example_columns, tally_examples, tally_examples_fully


def _work(rows: int, data: Path) -> Workload:
    return example_files(data, rows)


def expected(workload: Workload) -> Iterator[Any]:
    """Yield the batches that a workload must give."""
    for first in range(0, workload.rows, BATCH_SIZE):
        yield example_columns(first, min(BATCH_SIZE, workload.rows - first))


P1 = Scenario(
    key="p1",
    title="local TFRecords of small Examples: parse, shuffle(10,000), batch(256)",
    unit="records/s",
    rows=1_000_000,
    warm_up_rows=50_000,
    work=_work,
    expected=expected,
    tally=tally_examples,
    check=tally_examples_fully,
    contenders=(
        Contender(
            name=OURS,
            module="p1_aiostream_data",
            how="from_tfrecord(cycle_length=4), parse_example, shuffle, batch",
            packages=NATIVE,
        ),
        Contender(
            name="tf.data",
            module="p1_tfdata",
            how="interleave(4, AUTOTUNE, deterministic), shuffle, batch, vectorised parse_example, prefetch",
            packages=("tensorflow-cpu",),
            variant="deterministic",
        ),
        Contender(
            name="tf.data, any order",
            module="p1_tfdata",
            how="the same with deterministic=False",
            packages=("tensorflow-cpu",),
            variant="any order",
        ),
        Contender(
            name="tfrecord",
            module="p1_tfrecord",
            how="tfrecord_loader per file, shuffle_iterator, np.stack",
            packages=("tfrecord",),
        ),
        Contender(
            name="ceiling: bare loop",
            module="p1_ceiling",
            how="read, frame (CRC checked) and parse with our native kernels, one thread; no shuffle, no batch",
            packages=("numpy",),
        ),
    ),
)
