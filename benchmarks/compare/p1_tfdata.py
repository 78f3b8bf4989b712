"""P1 with tf.data, as its performance guide advises: parallel interleave, batch before parsing, prefetch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from benchmarks.workload import BATCH_SIZE, CYCLE_LENGTH, FEATURES, SHUFFLE_BUFFER, Workload

_FEATURES = {
    "features": tf.io.FixedLenFeature((FEATURES,), tf.float32),
    "label": tf.io.FixedLenFeature((), tf.int64),
    "id": tf.io.FixedLenFeature((), tf.int64),
}


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; ``variant`` says whether the order has to be the same every time, or adds captions."""
    caption = {"caption": tf.io.FixedLenFeature((), tf.string)}
    features = {**_FEATURES, **(caption if "captions" in (variant or "") else {})}
    autotune = tf.data.AUTOTUNE
    dataset = (
        tf.data.Dataset.from_tensor_slices([str(path) for path in workload.paths])
        .interleave(
            tf.data.TFRecordDataset,
            cycle_length=CYCLE_LENGTH,
            num_parallel_calls=autotune,
            deterministic="any order" not in (variant or ""),
        )
        .shuffle(SHUFFLE_BUFFER, seed=7)
        .batch(BATCH_SIZE)
        .map(lambda records: tf.io.parse_example(records, features), num_parallel_calls=autotune)
        .prefetch(autotune)
    )
    yield from dataset.as_numpy_iterator()
