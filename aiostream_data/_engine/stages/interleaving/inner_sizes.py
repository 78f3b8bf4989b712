"""Sizes of inner datasets in memory, which limit how many of them are made and joined at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Batch
from aiostream_data.plan.sources import PythonIterable, Range, Tensors, TensorSlices
from aiostream_data.rows.object_nbytes import object_nbytes, sample_of


def dataset_nbytes(node: Node, rows: int) -> int | None:
    """Return the size in bytes of a small dataset with ``rows`` rows, all repetitions together; None if unknown."""
    if isinstance(node, Range):
        return rows * node.dtype.itemsize
    if isinstance(node, TensorSlices):
        return sum(leaf.nbytes for leaf in node.leaves) * (node.times or 1)
    if isinstance(node, Tensors):
        return rows * object_nbytes(node.element)
    return object_nbytes(node.iterable) if isinstance(node, PythonIterable) else None


def mean_nbytes(inners: Sequence[Any]) -> float:
    """Estimate the mean size in bytes of inner datasets from some of them. Datasets that are no data in memory are 0.

    Args:
        inners: The datasets: plans, lists, tuples or arrays.
    """
    some = [inners[place] for place in _places(len(inners))]
    return sum(map(_inner_nbytes, some)) / max(1, len(some))


def _inner_nbytes(inner: Any) -> int:
    if isinstance(inner, np.ndarray):
        return inner.nbytes
    if isinstance(inner, Batch):
        return _inner_nbytes(inner.input)
    if isinstance(inner, PythonIterable):
        return _inner_nbytes(inner.iterable)
    if isinstance(inner, (list, tuple)):
        places = _places(len(inner))
        return sum(object_nbytes(inner[place]) for place in places) * len(inner) // max(1, len(places))
    if isinstance(inner, (Tensors, TensorSlices)):
        return dataset_nbytes(inner, inner.times or 1) or 0
    return 0


def _places(count: int) -> Sequence[int]:
    sample = sample_of(count)
    return range(count) if isinstance(sample, slice) else sample.tolist()
