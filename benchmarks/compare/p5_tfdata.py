"""P5 with tf.data, on local copies: it has no client for an S3 store of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from benchmarks.compare.p3_function import decoded
from benchmarks.compare.p5_aiostream_data import SHUFFLE_BUFFER
from benchmarks.images import IMAGE_BATCH, SIDE
from benchmarks.workload import CYCLE_LENGTH, Workload

FEATURES = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays."""
    autotune = tf.data.AUTOTUNE
    shards = tf.data.Dataset.from_tensor_slices([str(path) for path in workload.paths]).shuffle(len(workload.paths))
    records = shards.interleave(
        tf.data.TFRecordDataset, cycle_length=CYCLE_LENGTH, num_parallel_calls=autotune, deterministic=False
    )
    images = records.shuffle(SHUFFLE_BUFFER).map(_load, autotune, deterministic=False)
    yield from images.batch(IMAGE_BATCH, num_parallel_calls=autotune).prefetch(autotune).as_numpy_iterator()


def _load(record: Any) -> dict[str, Any]:
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.numpy_function(_decoded, [example["image"]], tf.uint8)
    image.set_shape((SIDE, SIDE, 3))
    return {"image": image, "label": example["label"]}


def _decoded(jpeg: bytes) -> NDArray[np.uint8]:
    return decoded(jpeg)
