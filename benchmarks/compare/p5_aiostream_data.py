"""P5 with this package: Examples from S3, shuffled as they come, decoded on threads, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import aiostream_data as asd
from benchmarks.compare.p3_function import decoded
from benchmarks.images import IMAGE_BATCH, WORKERS
from benchmarks.shards import keys_of, store_options
from benchmarks.workload import CYCLE_LENGTH, Workload

SHUFFLE_BUFFER = 500
"""Images that are mixed; for everyone who mixes in a buffer."""


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays."""
    options = store_options()
    urls = [f"s3://bench/{key}" for key in keys_of(workload, "tfrecord")]
    dataset = (
        asd.Dataset.from_tfrecord(urls, cycle_length=CYCLE_LENGTH, shuffle_shards=True, seed=1, storage_options=options)
        .parse_example({"image": asd.FixedLen((), bytes), "label": asd.FixedLen((), np.int64)})
        .shuffle(SHUFFLE_BUFFER, seed=1)
        .map(_load, concurrency=WORKERS)
        .batch(IMAGE_BATCH)
        .prefetch(4)
    )
    with dataset.open() as loader:
        yield from loader


def _load(record: dict[str, Any]) -> dict[str, Any]:
    return {"image": decoded(record["image"]), "label": record["label"]}
