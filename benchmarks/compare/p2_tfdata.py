"""P2 with tf.data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from benchmarks.compare.p2_function import add_one
from benchmarks.workload import BATCH_SIZE, Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays; ``variant`` says whether the function is called per element or, as the guide advises, per batch."""
    autotune = tf.data.AUTOTUNE
    numbers = tf.data.Dataset.range(workload.rows)
    if variant == "batch first":
        dataset = numbers.batch(BATCH_SIZE, num_parallel_calls=autotune).map(add_one, num_parallel_calls=autotune)
    else:
        # A parallel map of single elements is slower still: handing one over costs more than adding one.
        dataset = numbers.map(add_one).batch(BATCH_SIZE, num_parallel_calls=autotune)
    yield from dataset.prefetch(autotune).as_numpy_iterator()
