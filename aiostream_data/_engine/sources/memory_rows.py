"""Split in-memory sources (arrays, a single element, or a range of integers) into chunks of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._engine.flow.chunk_sizes import CHUNK_NBYTES, HOP_ROWS
from aiostream_data._engine.resume.origins import Namespace
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import Node
from aiostream_data.plan.sources import PythonIterable, Range, Tensors, TensorSlices
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import OTHER_PIPELINE, RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.transforms.copy_element import fresh

FIRST_ROWS = 256
"""Number of rows in the first chunk. With a small first chunk, the first element arrives early."""


def chunks_of(node: Node, namespace: Namespace, skip: int = 0) -> Iterator[Chunk]:
    """Yield the chunks of an in-memory source, without its first ``skip`` rows.

    Each repetition has its own split number, which is part of the row ids.
    """
    if isinstance(node, TensorSlices):
        first, row = divmod(skip, max(1, node.rows))
        for split in repetitions(node.times if node.rows else 0, first):
            yield from _slices(node, namespace.base + split, row)
            row = 0
    elif isinstance(node, Tensors):
        for split in repetitions(node.times, skip):
            yield Items([fresh(node.element)], RowIds.run(namespace.base + split, 0, 1))
    elif isinstance(node, Range):
        yield from _range_chunks(node, namespace.base, skip)
    elif isinstance(node, PythonIterable) and isinstance(node.iterable, (list, tuple)):
        yield Items(list(node.iterable[skip:]), RowIds.run(namespace.base, skip, max(0, len(node.iterable) - skip)))
    else:
        raise TypeError(f"{node.label} is not a source in memory")


def rows_of(node: Node, namespace: Namespace, splits: NDArray[np.int64], ordinals: NDArray[np.int64]) -> Chunk:
    """Return the rows of an in-memory source that have the given row ids.

    Args:
        splits: Repetition number of each row.
        ordinals: Index of each row within its repetition.

    Raises:
        StateMismatchError: A row index is out of range.
    """
    ids = RowIds.of_source(namespace.base + splits, ordinals)
    count = rows_per_split(node)
    if len(ordinals) and not 0 <= int(ordinals.min()) <= int(ordinals.max()) < count:
        raise StateMismatchError(
            [f"row {int(ordinals.max())} of {node.label} was requested, but it has {count} rows"], OTHER_PIPELINE
        )
    if isinstance(node, TensorSlices):
        return Columns(node.structure, tuple(_native.take_rows(leaf, ordinals) for leaf in node.leaves), ids)
    if isinstance(node, Tensors):
        return Items([fresh(node.element) for _ in range(len(ids))], ids)
    if isinstance(node, Range):
        return Columns(LEAF, ((node.start + ordinals * node.step).astype(node.dtype),), ids)
    assert isinstance(node, PythonIterable)
    return Items([node.iterable[row] for row in ordinals.tolist()], ids)


def rows_per_split(node: Node) -> int:
    """Return the number of rows in one repetition of an in-memory source."""
    if isinstance(node, TensorSlices):
        return node.rows
    if isinstance(node, Range):
        return len(node.numbers)
    return len(node.iterable) if isinstance(node, PythonIterable) else 1


def repetitions(times: int | None, first: int) -> Iterator[int]:
    """Yield the repetition numbers from ``first`` to ``times - 1``, or forever if ``times`` is None."""
    number = first
    while times is None or number < times:
        yield number
        number += 1


def spans(node: TensorSlices | Range, start: int) -> Iterator[tuple[int, int]]:
    """Yield the row range (start, stop) of each chunk in one repetition, beginning at row ``start``."""
    if isinstance(node, Range):
        return _spans(len(node.numbers), node.dtype.itemsize, start)
    return _spans(node.rows, sum(leaf.nbytes for leaf in node.leaves) / max(1, node.rows), start)


def _spans(rows: int, row_nbytes: float, start: int) -> Iterator[tuple[int, int]]:
    full = max(1, min(HOP_ROWS, int(CHUNK_NBYTES / max(row_nbytes, 1))))
    size = min(FIRST_ROWS, full)
    while start < rows:
        stop = min(start + size, rows)
        yield start, stop
        start, size = stop, full


def _slices(node: TensorSlices, split: int, skip: int) -> Iterator[Chunk]:
    for start, stop in spans(node, skip):
        leaves = tuple(leaf[start:stop] for leaf in node.leaves)
        yield Columns(node.structure, leaves, RowIds.run(split, start, stop - start))


def _range_chunks(node: Range, split: int, skip: int) -> Iterator[Chunk]:
    numbers = node.numbers
    for start, stop in spans(node, skip):
        part = numbers[start:stop]
        values = np.arange(part.start, part.stop, part.step, dtype=node.dtype)
        yield Columns(LEAF, (values,), RowIds.run(split, start, stop - start))
