"""Split in-memory sources (arrays, a single element, or a range of integers) into chunks of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._engine.flow.chunk_sizes import CHUNK_NBYTES, HOP_ROWS
from aiostream_data._engine.resume.origins import Namespace
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import Node
from aiostream_data.plan.keyed import WindowItems
from aiostream_data.plan.operators import ENDLESS
from aiostream_data.plan.sources import PythonIterable, Range, Tensors, TensorSlices
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.object_nbytes import object_nbytes
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import OTHER_PIPELINE, RowIds
from aiostream_data.rows.structure import LEAF, Structure
from aiostream_data.transforms.collate import collate
from aiostream_data.transforms.copy_element import fresh

FIRST_ROWS = 256
"""Number of rows in the first chunk. With a small first chunk, the first element arrives early."""

SHORT_ROWS = 4096
"""Repetitions with fewer rows share a chunk, which copies their rows. Longer repetitions are not copied."""


def chunks_of(node: Node, namespace: Namespace, skip: int = 0) -> Iterator[Chunk]:
    """Yield the chunks of an in-memory source, without its first ``skip`` rows.

    Each repetition has its own split number, which is part of the row ids. Short repetitions share a chunk.
    """
    if isinstance(node, (TensorSlices, Range)):
        rows = rows_per_split(node)
        if node.times != 1 and 0 < rows < SHORT_ROWS:
            yield from _short_repetitions(node, namespace, rows, skip)
            return
        for repetition, start, stop in long_spans(node, skip):
            ids = RowIds.run(namespace.base + repetition, start, stop - start)
            yield Columns(_structure(node), _slices(node, start, stop), ids)
    elif isinstance(node, Tensors):
        for repetition in repetitions(node.times, skip):
            yield Items([fresh(node.element)], RowIds.run(namespace.base + repetition, 0, 1))
    elif isinstance(node, WindowItems) and node.times != 1:
        yield from _repeated_items(node, namespace, skip)
    elif isinstance(node, PythonIterable) and isinstance(node.iterable, (list, tuple, np.ndarray)):
        left = node.iterable[skip:]
        yield collected(left, RowIds.run(namespace.base, skip, len(left)))
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
    if isinstance(node, (TensorSlices, Range)):
        return Columns(_structure(node), _taken(node, ordinals), ids)
    if isinstance(node, Tensors):
        return Items([fresh(node.element) for _ in range(len(ids))], ids)
    assert isinstance(node, PythonIterable)
    return collected([node.iterable[row] for row in ordinals.tolist()], ids)


def collected(items: Sequence[Any] | NDArray[Any], ids: RowIds) -> Chunk:
    """Return a chunk of the items of a sequence. A one-dimensional array of objects is a sequence of these objects."""
    if isinstance(items, np.ndarray) and items.dtype.isnative and not items.dtype.hasobject:
        return Columns(LEAF, (items,), ids)
    return collate(list(items), ids)


def rows_per_split(node: Node) -> int:
    """Return the number of rows in one repetition of an in-memory source."""
    if isinstance(node, (TensorSlices, Range)):
        return node.rows
    return len(node.iterable) if isinstance(node, PythonIterable) else 1


def epochs_of(node: TensorSlices | Range | Tensors | WindowItems) -> int:
    """Return the number of repetitions of an in-memory source, each of which is an epoch for its operators."""
    return ENDLESS if node.times is None else node.times


def repetitions(times: int | None, first: int) -> Iterator[int]:
    """Yield the repetition numbers from ``first`` to ``times - 1``, or forever if ``times`` is None."""
    number = first
    while times is None or number < times:
        yield number
        number += 1


def long_spans(node: TensorSlices | Range, skip: int) -> Iterator[tuple[int, int, int]]:
    """Yield the repetition and the row range (start, stop) in it of each chunk, without the first ``skip`` rows."""
    first, row = divmod(skip, max(1, node.rows))
    for repetition in repetitions(node.times if node.rows else 0, first):
        for start, stop in row_spans(node.rows, _row_nbytes(node), row):
            yield repetition, start, stop
        row = 0


def short_spans(node: TensorSlices | Range, skip: int) -> Iterator[tuple[int, int]]:
    """Yield the row range (start, stop) of each chunk, without the first ``skip`` rows, if repetitions share chunks.

    Rows are counted over all repetitions, each of which has at least one row.
    """
    return row_spans(inf if node.times is None else node.rows * node.times, _row_nbytes(node), skip)


def _row_nbytes(node: TensorSlices | Range) -> float:
    if isinstance(node, Range):
        return node.dtype.itemsize
    return sum(leaf.nbytes for leaf in node.leaves) / max(1, node.rows)


def row_spans(rows: float, row_nbytes: float, start: int) -> Iterator[tuple[int, int]]:
    full = max(1, min(HOP_ROWS, int(CHUNK_NBYTES / max(row_nbytes, 1))))
    size = min(FIRST_ROWS, full)
    while start < rows:
        stop = int(min(start + size, rows))
        yield start, stop
        start, size = stop, full


def _short_repetitions(node: TensorSlices | Range, namespace: Namespace, rows: int, skip: int) -> Iterator[Chunk]:
    for start, stop in short_spans(node, skip):
        splits, ordinals = np.divmod(np.arange(start, stop, dtype=np.int64), rows)
        ids = RowIds.of_source(namespace.base + splits, ordinals)
        yield Columns(_structure(node), _taken(node, ordinals), ids)


def _repeated_items(node: WindowItems, namespace: Namespace, skip: int) -> Iterator[Chunk]:
    items = node.iterable
    rows = inf if node.times is None and items else len(items) * (node.times or 0)
    for start, stop in row_spans(rows, object_nbytes(items) / max(1, len(items)), skip):
        splits, ordinals = np.divmod(np.arange(start, stop, dtype=np.int64), len(items))
        ids = RowIds.of_source(namespace.base + splits, ordinals)
        yield collected([items[row] for row in ordinals.tolist()], ids)


def _structure(node: TensorSlices | Range) -> Structure:
    return LEAF if isinstance(node, Range) else node.structure


def _slices(node: TensorSlices | Range, start: int, stop: int) -> tuple[Column, ...]:
    if isinstance(node, TensorSlices):
        return tuple(
            leaf.slice(start, stop) if isinstance(leaf, VarColumn) else leaf[start:stop] for leaf in node.leaves
        )
    part = node.numbers[start:stop]
    return (np.arange(part.start, part.stop, part.step, dtype=node.dtype),)


def _taken(node: TensorSlices | Range, ordinals: NDArray[np.int64]) -> tuple[Column, ...]:
    if isinstance(node, TensorSlices):
        return tuple(
            leaf.take(ordinals) if isinstance(leaf, VarColumn) else _native.take_rows(leaf, ordinals)
            for leaf in node.leaves
        )
    return ((node.start + ordinals * node.step).astype(node.dtype),)
