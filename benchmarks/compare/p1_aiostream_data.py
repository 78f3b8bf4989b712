"""P1 and P1 with captions, with this package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import aiostream_data as asd
from benchmarks.workload import BATCH_SIZE, CYCLE_LENGTH, FEATURES, SHUFFLE_BUFFER, Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; ``variant`` says in whose process they are made, or whether and how they have captions."""
    features = {
        "features": asd.FixedLen((FEATURES,), np.float32),
        "label": asd.FixedLen((), np.int64),
        "id": asd.FixedLen((), np.int64),
        **({"caption": asd.FixedLen((), bytes)} if (variant or "").startswith("captions") else {}),
    }
    dataset = (
        asd.Dataset.from_tfrecord([str(path) for path in workload.paths], compression="", cycle_length=CYCLE_LENGTH)
        .parse_example(features)
        .shuffle(SHUFFLE_BUFFER, seed=7)
        .batch(BATCH_SIZE, strings="columns" if variant == "captions in columns" else "objects")
    )
    if variant == "in_subprocess":
        dataset = dataset.in_subprocess()
    with dataset.prefetch(8).open() as loader:
        yield from loader
