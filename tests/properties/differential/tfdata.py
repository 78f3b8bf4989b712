"""Run a plan in tf.data. Needs TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from differential.functions import MAPS, PREDICATES, SCANS
from differential.outcomes import MOST_ELEMENTS, REFUSED, Outcome, Plan, described

Data = tf.data.Dataset


class TensorKit:
    """Operations on tensors."""

    def numbers(self, count: Any) -> Any:
        return tf.range(count, dtype=tf.int64)

    def total(self, array: Any) -> Any:
        return tf.reduce_sum(array)

    def fail(self, condition: Any) -> Callable[[Any], Any]:
        """Return a function that returns its argument, or fails."""

        def checked(value: Any) -> Any:
            with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(condition), ["the plan says so"])]):
                return tf.identity(value)

        return checked


KIT = TensorKit()


def run(plan: Plan) -> Outcome:
    """Build and read a plan."""
    try:
        dataset = built(plan)
    except (tf.errors.InvalidArgumentError, ValueError, TypeError):
        return REFUSED
    elements: list[Any] = []
    failed = False
    try:
        for element in dataset.as_numpy_iterator():
            elements.append(described(element))
            if len(elements) == MOST_ELEMENTS:
                break
    except tf.errors.InvalidArgumentError:
        failed = True
    return Outcome(False, elements, failed, int(dataset.cardinality()))


def built(plan: Plan) -> Any:
    """Return the dataset of a plan."""
    (source, *arguments), *steps = plan
    dataset = SOURCES[source](*arguments)
    for name, *arguments in steps:
        dataset = OPERATORS[name](dataset, *arguments)
    return dataset


def _function(name: str) -> Callable[..., Any]:
    return partial(MAPS[name].call, KIT)


def _predicate(name: str) -> Callable[..., Any]:
    return partial(PREDICATES[name][1], KIT)


def _padded(dataset: Any, size: int, padding: int | None, drop: bool) -> Any:
    value = None if padding is None else tf.constant(padding, tf.int64)
    return dataset.padded_batch(size, padding_values=value, drop_remainder=drop)


def _slices(values: Any) -> Any:
    is_float = isinstance(values[0], float)
    return Data.from_tensor_slices(tf.constant(values, tf.float64 if is_float else tf.int64))


def _slices_of_a_dict(numbers: list[int]) -> Any:
    column = tf.constant(numbers, tf.int64)
    return Data.from_tensor_slices({"a": column, "b": column[:, None] + tf.range(3, dtype=tf.int64)})


INNER: dict[str, Callable[[Any], Any]] = {
    "range": lambda x: Data.range(x % 4),
    "slices": lambda x: Data.from_tensor_slices(tf.range(2, dtype=tf.int64) + x),
    "repeat": lambda x: Data.from_tensors(x).repeat(3),
}

SOURCES: dict[str, Callable[..., Any]] = {
    "range": Data.range,
    "counter": Data.counter,
    "slices": _slices,
    "slices of a pair": lambda a, b: Data.from_tensor_slices((tf.constant(a, tf.int64), tf.constant(b, tf.int64))),
    "slices of a dict": _slices_of_a_dict,
    "slices of bytes": lambda texts: Data.from_tensor_slices([text.encode() for text in texts]),
}

OPERATORS: dict[str, Callable[..., Any]] = {
    "take": Data.take,
    "skip": Data.skip,
    "repeat": Data.repeat,
    "shard": Data.shard,
    "cache": Data.cache,
    "prefetch": Data.prefetch,
    "unbatch": Data.unbatch,
    "enumerate": Data.enumerate,
    "unique": Data.unique,
    "groups": lambda dataset, window, size: dataset.group_by_window(
        lambda x: x % 3, lambda key, group: group.batch(size), window
    ),
    "scan": lambda dataset, name, initial: dataset.scan(tf.constant(initial, tf.int64), SCANS[name]),
    "map": lambda dataset, name: dataset.map(_function(name)),
    "filter": lambda dataset, name: dataset.filter(_predicate(name)),
    "take_while": lambda dataset, name: dataset.take_while(_predicate(name)),
    "flat_map": lambda dataset, inner: dataset.flat_map(INNER[inner]),
    "interleave": lambda dataset, inner, cycle, block: dataset.interleave(
        INNER[inner], cycle_length=cycle, block_length=block
    ),
    "batch": lambda dataset, size, drop: dataset.batch(size, drop_remainder=drop),
    "padded_batch": _padded,
    "rebatch": lambda dataset, sizes, drop: dataset.rebatch(sizes, drop_remainder=drop),
    "window": lambda dataset, size, shift, stride, drop: dataset.window(size, shift, stride, drop).flat_map(
        lambda window: window.batch(size)
    ),
    "buckets": lambda dataset, boundaries, sizes, drop: dataset.bucket_by_sequence_length(
        lambda row: tf.shape(row)[0], boundaries, sizes, drop_remainder=drop
    ),
    "zip": lambda dataset, other: Data.zip(dataset, built(other)),
    "concatenate": lambda dataset, other: dataset.concatenate(built(other)),
    "choose": lambda dataset, other, choices, stop: Data.choose_from_datasets(
        [dataset, built(other)], Data.from_tensor_slices(tf.constant(choices, tf.int64)), stop == "first"
    ),
}
