"""Values of both libraries in a form that they share. Needs TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import aiostream_data as asd
from differential.outcomes import MOST_ELEMENTS

FAILED = "an error"


def is_dataset(value: Any) -> bool:
    return isinstance(value, tf.data.Dataset | asd.Dataset)


def shared(value: Any) -> Any:
    """Return a value as nested lists: with dtype, shape and values of arrays, and the elements of datasets."""
    if is_dataset(value):
        return ["dataset", *elements(value)]
    if isinstance(value, dict):
        return {key: shared(value[key]) for key in sorted(value)}
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(shared, value)]
    if isinstance(value, tf.TensorSpec):
        return ["spec", _name(value.dtype.as_numpy_dtype), None if value.shape.rank is None else list(value.shape)]
    if isinstance(value, asd.ArraySpec):
        shape = value.shape
        return ["spec", None if value.dtype is None else _name(value.dtype), None if shape is None else list(shape)]
    if isinstance(value, tf.TensorShape):
        return list(value)
    if isinstance(value, tf.RaggedTensor):
        return ["ragged", value.values.dtype.name, value.to_list()]
    if isinstance(value, asd.RaggedArray):
        return ["ragged", value.values.dtype.name, value.to_list()]
    if value is None or isinstance(value, str):
        return value
    array = value.numpy() if isinstance(value, tf.Tensor) else value
    return _described(np.asarray(array))


def _described(array: Any) -> Any:
    if array.dtype.kind in "SO":
        return ["bytes", list(array.shape), [bytes(leaf).decode("latin-1") for leaf in array.ravel().tolist()]]
    return [array.dtype.name, list(array.shape), array.ravel().tolist()]


def _name(dtype: Any) -> str:
    return "bytes" if np.dtype(dtype).kind in "SO" else np.dtype(dtype).name


def elements(dataset: Any) -> Iterator[Any]:
    """Yield the first elements of a dataset, and FAILED if it fails."""
    iterator = iter(dataset)
    try:
        for _ in range(MOST_ELEMENTS):
            yield shared(next(iterator))
    except StopIteration:
        return
    except Exception:  # of a function, of any class
        yield FAILED


def cardinality(dataset: Any) -> int:
    """Return the number of elements that a dataset declares; less than 0 for infinite and unknown."""
    known = {asd.INFINITE: -1, asd.UNKNOWN: -2}
    found = dataset.cardinality()
    return known.get(found, found) if isinstance(dataset, asd.Dataset) else int(found)
