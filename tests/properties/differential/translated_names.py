"""Names that translated statements use: what a user writes here in place of a function of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

import aiostream_data as asd
from aiostream_data import Dataset

DTYPES = {"i": np.int32, "f": np.float32}
"""Dtypes that TensorFlow gives to Python numbers."""


def constant(value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Return an array with the dtype that ``tf.constant`` chooses."""
    if isinstance(value, np.generic | np.ndarray):
        return value if dtype is None else value.astype(dtype)
    array = np.asarray(value)
    if array.dtype.kind == "U":
        array = np.array([text.encode() for text in array.ravel()], object).reshape(array.shape)
    array = array.astype(dtype or DTYPES.get(array.dtype.kind, array.dtype))
    return array.reshape(shape) if shape is not None else array[()]


def tensors(value: Any) -> Any:
    """Return the arrays that TensorFlow makes of nested Python values: tuples and dicts are structure."""
    if isinstance(value, tuple):
        return tuple(map(tensors, value))
    if isinstance(value, dict):
        return {key: tensors(leaf) for key, leaf in value.items()}
    return constant(value)


def from_list(elements: list[Any]) -> Dataset[Any]:
    return Dataset.from_list([tensors(element) for element in elements])


def typed_generator(
    dataset: type[Dataset[Any]],
    generator: Callable[[], Iterable[Any]],
    types: Any = None,
    output_shapes: Any = None,
    output_signature: Any = None,
) -> Dataset[Any]:
    """Return the items of a generator as arrays of declared types. Here, the generator makes them itself."""
    declared = types if output_signature is None else output_signature

    def items() -> Iterator[Any]:
        for item in generator():
            yield _typed(item, declared)

    specs = None if output_shapes is None else asd.ArraySpec(tuple(output_shapes), np.dtype(types))
    return dataset.from_generator(items, signature=specs)


def _typed(item: Any, dtype: Any) -> Any:
    if isinstance(dtype, tuple):
        return tuple(map(_typed, item, dtype))
    if isinstance(dtype, dict):
        return {key: _typed(item[key], dtype[key]) for key in dtype}
    if isinstance(item, asd.RaggedArray):
        return item
    return constant(item, None if dtype is bytes else dtype)


def type_of_spec(shape: Any, dtype: Any) -> Any:
    return dtype


def ragged(rows: list[list[int]]) -> asd.RaggedArray:
    return asd.RaggedArray(np.concatenate(rows).astype(np.int32), np.cumsum([0, *map(len, rows)]))


def item(value: Any) -> Any:
    return np.asarray(value).item()


def counter(start: int = 0, step: int = 1) -> Dataset[int]:
    return Dataset.counter(start, step)


def zipped(*datasets: Any) -> Dataset[Any]:
    return Dataset.zip(*datasets)


def lines(files: Any) -> Dataset[Any]:
    return Dataset.from_text(_path(files), encoding=None)


def records(files: Any) -> Dataset[bytes]:
    return Dataset.from_tfrecord(_path(files))


def _path(files: Any) -> Any:
    return files.decode() if isinstance(files, bytes) else files


def asserting_cardinality(count: int) -> Callable[[Dataset[Any]], Dataset[Any]]:
    return lambda dataset: dataset.assert_cardinality(count)


def bucketing(**arguments: Any) -> Callable[[Dataset[Any]], Dataset[Any]]:
    return lambda dataset: dataset.bucket_by_sequence_length(**arguments)


def ragged_batching(batch_size: int) -> Callable[[Dataset[Any]], Dataset[Any]]:
    return lambda dataset: dataset.ragged_batch(batch_size)


def structure_of(dataset: Any) -> Any:
    return dataset.element_spec


def check_numerics(value: float, message: str) -> float:
    if not np.isfinite(value):
        raise ValueError(message)
    return value


def fixed(shape: Any, dtype: Any) -> asd.FixedLen:
    return asd.FixedLen(tuple(shape), dtype)


def parse_example(record: bytes, features: Any) -> Any:
    return asd.parse_example(record, features)


def map_structure(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: map_structure(function, leaf) for key, leaf in value.items()}
    return function(value)


def called(func: Callable[..., Any], inp: list[Any], Tout: Any) -> Any:
    return constant(func(*inp), None if Tout is bytes else Tout)


def with_options(dataset: Dataset[Any], options: SimpleNamespace) -> Dataset[Any]:
    return dataset.with_options(**vars(options))


def options_of(dataset: Dataset[Any]) -> SimpleNamespace:
    return SimpleNamespace(**dataset.options())


NAMESPACE = {"asd": asd, "np": np, "Dataset": Dataset, "Options": SimpleNamespace} | {
    name: value for name, value in list(globals().items()) if not name.startswith("_") and callable(value)
}
