"""P3 with tf.data: the common function called back, or TensorFlow's own operations in the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from benchmarks.compare.p3_function import load
from benchmarks.images import IMAGE_BATCH, SIDE
from benchmarks.workload import Workload


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays; ``variant`` says whose operations load an image."""
    autotune = tf.data.AUTOTUNE
    paths = [str(path) for path in workload.paths]
    labels = [int(path.stem) for path in workload.paths]
    files = tf.data.Dataset.from_tensor_slices({"image": paths, "label": np.array(labels)})
    image_of = _own if variant == "own" else _called_back
    images = files.map(lambda file: {"image": image_of(file["image"]), "label": file["label"]}, autotune)
    yield from images.batch(IMAGE_BATCH, num_parallel_calls=autotune).prefetch(autotune).as_numpy_iterator()


def _own(path: Any) -> Any:
    image = tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (SIDE, SIDE))
    return tf.cast(image, tf.uint8)


def _called_back(path: Any) -> Any:
    image = tf.numpy_function(_pixels, [path], tf.uint8)
    image.set_shape((SIDE, SIDE, 3))
    return image


def _pixels(path: bytes) -> NDArray[np.uint8]:
    pixels: NDArray[np.uint8] = load(path.decode())["image"]
    return pixels
