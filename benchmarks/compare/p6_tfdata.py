"""P6 with tf.data: Python functions can only be called back, under the GIL, by a TensorFlow op."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from benchmarks.compare.p6_functions import FUNCTIONS, NAPS_AT_ONCE, naps
from benchmarks.workload import BATCH_SIZE, Workload

WORKERS = 2


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield arrays; ``variant`` is the function, and whether it is called back per "element" or per "batch"."""
    function, unit = (variant or "spin batch").split()
    numbers = tf.data.Dataset.range(workload.rows)
    if unit == "batch":
        at_once = 1 if function == "naps" else WORKERS  # a call has all naps that may be taken at once
        dataset = numbers.batch(BATCH_SIZE).map(_called_back(_over_batches(function)), at_once)
    else:
        mapped = numbers.map(_called_back(FUNCTIONS[function]), NAPS_AT_ONCE if function == "nap" else WORKERS)
        dataset = mapped.batch(BATCH_SIZE)
    options = tf.data.Options()
    if function == "nap":
        options.threading.private_threadpool_size = NAPS_AT_ONCE
    yield from dataset.prefetch(8).with_options(options).as_numpy_iterator()


def _called_back(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda argument: tf.numpy_function(function, [argument], tf.int64)


def _over_batches(name: str) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    if name == "naps":
        return lambda numbers: np.asarray(asyncio.run(naps(numbers.tolist())))
    function = FUNCTIONS[name]
    return lambda numbers: np.fromiter(map(function, numbers.tolist()), np.int64, len(numbers))
