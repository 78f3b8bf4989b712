"""P1 with a bytes feature: what a caption of 40 bytes costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dataset import example_files
from benchmarks.scenario import NATIVE, OURS, Contender, Scenario
from benchmarks.scenarios.p1 import expected
from benchmarks.workload import Workload, captions, tally_captions_fully, tally_examples


def _work(rows: int, data: Path) -> Workload:
    return example_files(data, rows, with_captions=True)


def _expected(workload: Workload) -> Iterator[Any]:
    for columns in expected(workload):
        yield {**columns, "caption": np.array(captions(columns["id"].tolist()), object)}


P1_BYTES = Scenario(
    key="p1_bytes",
    title="local TFRecords of small Examples with a bytes feature of 40 bytes: parse, shuffle(10,000), batch(256)",
    unit="records/s",
    rows=1_000_000,
    warm_up_rows=50_000,
    work=_work,
    expected=_expected,
    tally=tally_examples,
    check=tally_captions_fully,
    contenders=(
        Contender(
            name=OURS,
            module="p1_aiostream_data",
            how="from_tfrecord(cycle_length=4), parse_example, shuffle, batch",
            packages=NATIVE,
            variant="captions",
        ),
        Contender(
            name=f"{OURS}, columns",
            module="p1_aiostream_data",
            how='the same with batch(strings="columns"): offsets and one buffer instead of bytes objects',
            packages=NATIVE,
            variant="captions in columns",
        ),
        Contender(
            name=f"{OURS}, without the bytes",
            module="p1_aiostream_data",
            how="the same, but the bytes feature is not parsed",
            packages=NATIVE,
            same_values=False,  # it has no captions
        ),
        Contender(
            name="tf.data",
            module="p1_tfdata",
            how="interleave(4, AUTOTUNE, deterministic), shuffle, batch, vectorised parse_example, prefetch",
            packages=("tensorflow-cpu",),
            variant="captions",
        ),
        Contender(
            name="tf.data, any order",
            module="p1_tfdata",
            how="the same with deterministic=False",
            packages=("tensorflow-cpu",),
            variant="captions, any order",
        ),
    ),
)
