"""Rows of small inner datasets: lists, arrays and in-memory datasets that a user function returned.

The rows of many consecutive small datasets are joined into one chunk, because a task and a channel for each dataset
would take longer than its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, groupby
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.origins import Namespace
from aiostream_data._engine.sources.memory_rows import chunks_of, collected, rows_per_split
from aiostream_data._engine.stages.interleaving.small_batches import (
    NamespaceOf,
    batched_rows,
    batches_of,
    can_be_cut,
    cut_into_batches,
)
from aiostream_data.plan.base import Node
from aiostream_data.plan.keyed import WindowItems
from aiostream_data.plan.operators import Batch
from aiostream_data.plan.sources import PythonIterable, Range, Tensors, TensorSlices
from aiostream_data.rows.columns import Column, VarColumn, concat_column
from aiostream_data.rows.lineage import Lineage, ids_side_by_side
from aiostream_data.rows.records import Chunk, Columns, Items, concat, lineage_of
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.transforms.batching import Describe
from aiostream_data.transforms.copy_element import fresh

SMALL_ROWS: Final = 8192
"""Maximum number of rows of a small dataset."""

Inner: TypeAlias = Node | list[Any] | tuple[Any, ...] | NDArray[Any]
"""Inner dataset: a plan, or a sequence that a user function returned."""

_LISTS_AND_TUPLES: Final = frozenset({list, tuple})

_SEQUENCE: Final = PythonIterable(iterable=(), one_shot=False)
"""Stands for all sequences in the search of their namespace."""


def is_sequence(result: Any) -> bool:
    """Return True if the result of a user function is a sequence whose items are rows."""
    kind = type(result)
    return kind is list or kind is tuple or (kind is np.ndarray and result.ndim > 0)


def are_lists(results: Sequence[Any]) -> bool:
    """Return True if all results of a user function are lists or tuples. This takes a fraction of the call's time."""
    return set(map(type, results)) <= _LISTS_AND_TUPLES


def rows_of_each(inners: Sequence[Inner]) -> NDArray[np.int64]:
    """Return the number of rows of each small inner dataset, and -1 for each other dataset, as int64."""
    count: Callable[[Any], int] = len if are_lists(inners) else small_rows
    rows = np.fromiter(map(count, inners), np.int64, len(inners))
    rows[rows > SMALL_ROWS] = -1
    return rows


def is_small(inner: Inner) -> bool:
    """Return True if an inner dataset is in memory and has at most ``SMALL_ROWS`` rows."""
    return small_rows(inner) >= 0


def small_rows(inner: Inner) -> int:
    """Return the number of rows of a small inner dataset in memory, or -1 for any other dataset."""
    if type(inner) is Range and inner.times == 1 and inner.permuted is None:
        rows = len(inner.numbers)
    elif not isinstance(inner, Node):
        rows = len(inner)
    elif isinstance(inner, PythonIterable):
        rows = len(inner.iterable) if is_sequence(inner.iterable) else -1
        if isinstance(inner, WindowItems):
            rows = _repeated(rows, inner.times)
    elif isinstance(inner, (TensorSlices, Range)):
        rows = -1 if inner.permuted is not None else _repeated(rows_per_split(inner), inner.times)
    elif isinstance(inner, Batch):
        rows = batched_rows(inner, small_rows(inner.input))
    else:
        rows = _repeated(1, inner.times) if isinstance(inner, Tensors) else -1
    return rows if rows <= SMALL_ROWS else -1


def _repeated(rows: int, times: int | None) -> int:
    if rows == 0:
        return 0
    return -1 if times is None else rows * times


def joined(
    inners: Sequence[Inner], rows: NDArray[np.int64], outer: Lineage, namespace_of: NamespaceOf, describe: Describe
) -> Chunk | None:
    """Join the rows of small datasets into one chunk. Return None if there are no rows.

    Args:
        rows: Number of rows of each dataset.
        outer: Lineage of the elements from which the datasets were made.
        namespace_of: Returns the namespace of a dataset.
        describe: Returns the name of a row for error messages.

    Raises:
        BatchShapeError: The rows of a batch cannot be stacked.
    """
    chunk = joined_rows(inners, rows, namespace_of, describe)
    return None if chunk is None else with_outer(chunk, outer, rows)


def joined_rows(
    inners: Sequence[Inner], rows: NDArray[np.int64], namespace_of: NamespaceOf, describe: Describe
) -> Chunk | None:
    """Join the rows of small datasets, without the ids of outer rows. See :func:`joined`."""
    parts, first = [], 0
    kinds = [(_LISTS, inners)] if are_lists(inners) else [(kind, [*same]) for kind, same in groupby(inners, kind_of)]
    for kind, same in kinds:
        part = _rows_of(kind, same, rows[first : first + len(same)], namespace_of, describe)
        first += len(same)
        if part is not None:
            parts.append(part)
    return concat(parts) if parts else None


def with_outer(chunk: Chunk, outer: Lineage, rows: NDArray[np.int64]) -> Chunk:
    """Append the ids of the outer rows to the ids of a chunk. Outer row ``i`` has ``rows[i]`` rows in the chunk."""
    repeated = outer.take(np.repeat(np.arange(len(rows)), rows))
    ids, made_of = ids_side_by_side([lineage_of(chunk), repeated])
    return chunk.with_ids(ids).with_made_of(made_of)


def of_one(chunk: Chunk, outer: Lineage) -> Chunk:
    """Append the ids of one outer row to the ids of every row of a chunk."""
    if chunk.made_of is None and outer.made_of is None:
        return chunk.with_ids(chunk.ids.join_one(outer.ids))
    return with_outer(chunk, outer, np.array([len(chunk)]))


_Kind: TypeAlias = tuple[Any, ...]
_LISTS: Final = (list,)


def kind_of(inner: Inner) -> _Kind:
    """Return a key of all datasets whose rows can be joined at once."""
    kind = type(inner)
    if kind is list or kind is tuple:
        return _LISTS
    if isinstance(inner, Range) and inner.times == 1:
        return (Range, inner.dtype)
    if isinstance(inner, np.ndarray):
        return (np.ndarray, inner.dtype, inner.shape[1:])
    if isinstance(inner, Batch):
        source = inner.input
        of_source = (id(source),) if isinstance(source, (TensorSlices, Tensors)) else kind_of(source)
        return (Batch, inner.batch_size, inner.drop_remainder, inner.strings, *of_source)
    if isinstance(inner, TensorSlices) and inner.times == 1:
        return (TensorSlices, inner.name, inner.structure, *map(_layout_of, inner.leaves))
    if isinstance(inner, Tensors) and inner.times == 1:
        return (Tensors,)
    if isinstance(inner, PythonIterable) and getattr(inner, "times", 1) == 1:
        return (PythonIterable, inner.label, *kind_of(inner.iterable))
    return (id(inner),)  # of one dataset only


def _layout_of(leaf: Column) -> tuple[Any, ...]:
    return (leaf.kind, leaf.dtype, leaf.item_shape) if isinstance(leaf, VarColumn) else (leaf.dtype, leaf.shape[1:])


def _rows_of(
    kind: _Kind, inners: Sequence[Any], counts: NDArray[np.int64], namespace_of: NamespaceOf, describe: Describe
) -> Chunk | None:
    """Return the rows of datasets of one kind, or None if there are none. ``counts`` has the rows of each dataset."""
    chunk: Chunk | None
    if kind[0] is list or kind[0] is np.ndarray:
        chunk = _items_of(inners, counts, namespace_of(_SEQUENCE))
    elif kind[0] is Range:
        ids = ids_of_each(counts, namespace_of(inners[0]).base)
        starts = np.fromiter((inner.start for inner in inners), np.int64, len(inners))
        steps = np.fromiter((inner.step for inner in inners), np.int64, len(inners))
        values = np.repeat(starts, counts) + ids.ordinals * np.repeat(steps, counts)
        chunk = Columns(LEAF, (values.astype(kind[1], copy=False),), ids)
    elif kind[0] is PythonIterable:
        chunk = _items_of([inner.iterable for inner in inners], counts, namespace_of(inners[0]))
    elif kind[0] is Batch:
        chunk = _batches(inners, namespace_of, describe)
    elif kind[0] is TensorSlices and len(inners) > 1:
        leaves = tuple(map(concat_column, zip(*(inner.leaves for inner in inners), strict=True)))
        chunk = Columns(kind[2], leaves, ids_of_each(counts, namespace_of(inners[0]).base))
    elif kind[0] is Tensors and len(inners) > 1:
        chunk = Items([fresh(inner.element) for inner in inners], ids_of_each(counts, namespace_of(inners[0]).base))
    else:
        parts = [part for inner in inners for part in chunks_of(inner, namespace_of(inner)) if len(part)]
        chunk = concat(parts) if parts else None
    return chunk if chunk is not None and len(chunk) else None


def _items_of(sequences: Sequence[Any], counts: NDArray[np.int64], namespace: Namespace) -> Chunk:
    """Return the items of sequences of one kind as rows."""
    items: Any
    if len(sequences) == 1:
        (items,) = sequences
    elif isinstance(sequences[0], np.ndarray):
        items = np.concatenate(sequences)
    else:
        items = list(chain.from_iterable(sequences))
    return collected(items, ids_of_each(counts, namespace.base))


def _batches(nodes: Sequence[Batch], namespace_of: NamespaceOf, describe: Describe) -> Chunk | None:
    """Return the batches of datasets of one kind: those of all datasets at once, or of one after another."""
    inputs = [node.input for node in nodes]
    if len(nodes) > 1:
        counts = np.fromiter(map(small_rows, inputs), np.int64, len(inputs))
        rows = _rows_of(kind_of(inputs[0]), inputs, counts, namespace_of, describe)
        if can_be_cut(rows):
            return cut_into_batches(nodes[0], rows, counts.tolist(), describe)
    batches = [part for node in nodes for part in batches_of(node, namespace_of, describe)]
    return concat(batches) if batches else None


def ids_of_each(counts: NDArray[np.int64], splits: NDArray[np.int64] | int) -> RowIds:
    """Return the ids of the rows of several datasets, one dataset after another.

    Args:
        counts: Number of rows of each dataset.
        splits: Split number of each row, or of all rows.
    """
    first = np.cumsum(counts) - counts
    return RowIds.of_source(splits, np.arange(int(counts.sum())) - np.repeat(first, counts))
