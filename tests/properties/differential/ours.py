"""Run a plan in this package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import aiostream_data as asd
from aiostream_data import Dataset
from differential.functions import MAPS, PREDICATES, SCANS, NumpyKit
from differential.outcomes import INFINITE, MOST_ELEMENTS, REFUSED, UNKNOWN, Outcome, Plan, described

KIT = NumpyKit()


def run(plan: Plan) -> Outcome:
    """Build and read a plan."""
    try:
        dataset = built(plan)
    except (asd.PlanError, ValueError, TypeError):
        return REFUSED
    elements: list[Any] = []
    failed = False
    with dataset.open() as loader:
        try:
            for element in loader:
                elements.append(described(element))
                if len(elements) == MOST_ELEMENTS:
                    break
        except (asd.AiostreamError, ValueError):
            failed = True
    known = {asd.INFINITE: INFINITE, asd.UNKNOWN: UNKNOWN}
    cardinality = dataset.cardinality()
    return Outcome(False, elements, failed, known.get(cardinality, cardinality))


def built(plan: Plan) -> Dataset[Any]:
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


INNER: dict[str, Callable[[int], Any]] = {
    "range": lambda x: Dataset.range(x % 4),
    "slices": lambda x: Dataset.from_tensor_slices(np.arange(2) + x),
    "repeat": lambda x: Dataset.from_tensors(np.int64(x)).repeat(3),
}

SOURCES: dict[str, Callable[..., Dataset[Any]]] = {
    "range": Dataset.range,
    "counter": Dataset.counter,
    "slices": lambda values: Dataset.from_tensor_slices(np.array(values)),
    "slices of a pair": lambda a, b: Dataset.from_tensor_slices((np.array(a), np.array(b))),
    "slices of a dict": lambda a: Dataset.from_tensor_slices(
        {"a": np.array(a), "b": np.array(a)[:, None] + np.arange(3)}
    ),
    "slices of bytes": lambda texts: Dataset.from_tensor_slices([text.encode() for text in texts]),
}

OPERATORS: dict[str, Callable[..., Dataset[Any]]] = {
    "take": Dataset.take,
    "skip": Dataset.skip,
    "repeat": Dataset.repeat,
    "shard": Dataset.shard,
    "cache": Dataset.cache,
    "prefetch": Dataset.prefetch,
    "unbatch": Dataset.unbatch,
    "enumerate": Dataset.enumerate,
    "unique": Dataset.unique,
    "groups": lambda dataset, window, size: dataset.group_by_window(
        lambda x: x % 3, lambda key, group: group.batch(size), window
    ),
    "scan": lambda dataset, name, initial: dataset.scan(SCANS[name], initial),
    "map": lambda dataset, name: dataset.map(_function(name)),
    "filter": lambda dataset, name: dataset.filter(_predicate(name)),
    "take_while": lambda dataset, name: dataset.take_while(_predicate(name)),
    "flat_map": lambda dataset, inner: dataset.flat_map(INNER[inner]),
    "interleave": lambda dataset, inner, cycle, block: dataset.interleave(
        INNER[inner], cycle_length=cycle, block_length=block
    ),
    "batch": lambda dataset, size, drop: dataset.batch(size, drop_remainder=drop),
    "padded_batch": lambda dataset, size, padding, drop: dataset.padded_batch(
        size, padding_values=padding, drop_remainder=drop
    ),
    "rebatch": lambda dataset, sizes, drop: dataset.rebatch(sizes, drop_remainder=drop),
    "window": lambda dataset, size, shift, stride, drop: dataset.window(size, shift, stride, drop_remainder=drop),
    "buckets": lambda dataset, boundaries, sizes, drop: dataset.bucket_by_sequence_length(
        len, boundaries, sizes, drop_remainder=drop
    ),
    "zip": lambda dataset, other: Dataset.zip(dataset, built(other)),
    "concatenate": lambda dataset, other: dataset.concatenate(built(other)),
    "choose": lambda dataset, other, choices, stop: Dataset.choose_from(
        [dataset, built(other)], Dataset.from_tensor_slices(np.array(choices)), stop=stop
    ),
}
