"""Cut what lies in memory (arrays, one element, a range of integers) into chunks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aiostream_data._engine.origins import Namespace
from aiostream_data._engine.pacing import CHUNK_NBYTES, HOP_ROWS
from aiostream_data.plan.base import Node
from aiostream_data.plan.sources import PythonIterable, Range, Tensors, TensorSlices
from aiostream_data.records import Chunk, Columns, Items, run_of_ids
from aiostream_data.structure import LEAF

FIRST_ROWS = 256
"""Rows of the first chunk: small, so that the first element is soon there."""


def chunks_of(node: Node, namespace: Namespace) -> Iterator[Chunk]:
    """Yield the rows of a source in memory; a folded repetition is one split each."""
    if isinstance(node, TensorSlices):
        for split in _repetitions(node.times if node.rows else 0):
            yield from _slices(node, namespace.base + split)
    elif isinstance(node, Tensors):
        for split in _repetitions(node.times):
            yield Items([node.element], run_of_ids(namespace.base + split, 0, 1))
    elif isinstance(node, Range):
        yield from _range_chunks(node, namespace.base)
    elif isinstance(node, PythonIterable) and isinstance(node.iterable, (list, tuple)):
        yield Items(list(node.iterable), run_of_ids(namespace.base, 0, len(node.iterable)))
    else:
        raise TypeError(f"{node.label} is not a source in memory")


def _repetitions(times: int | None) -> Iterator[int]:
    number = 0
    while times is None or number < times:
        yield number
        number += 1


def _spans(rows: int, row_nbytes: float) -> Iterator[tuple[int, int]]:
    full = max(1, min(HOP_ROWS, int(CHUNK_NBYTES / max(row_nbytes, 1))))
    start, size = 0, min(FIRST_ROWS, full)
    while start < rows:
        stop = min(start + size, rows)
        yield start, stop
        start, size = stop, full


def _slices(node: TensorSlices, split: int) -> Iterator[Chunk]:
    row_nbytes = sum(leaf.nbytes for leaf in node.leaves) / node.rows
    for start, stop in _spans(node.rows, row_nbytes):
        leaves = tuple(leaf[start:stop] for leaf in node.leaves)
        yield Columns(node.structure, leaves, run_of_ids(split, start, stop - start))


def _range_chunks(node: Range, split: int) -> Iterator[Chunk]:
    numbers = node.numbers
    for start, stop in _spans(len(numbers), node.dtype.itemsize):
        part = numbers[start:stop]
        values = np.arange(part.start, part.stop, part.step, dtype=node.dtype)
        yield Columns(LEAF, (values,), run_of_ids(split, start, stop - start))
