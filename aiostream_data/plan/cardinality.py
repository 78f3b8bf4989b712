"""Compute the number of elements of a plan before reading, if possible (tf.data's ``cardinality``)."""

from __future__ import annotations

from collections.abc import Sized
from functools import singledispatch

from aiostream_data.failing.policies import may_drop
from aiostream_data.plan import operators as op
from aiostream_data.plan import sources as src
from aiostream_data.plan.base import INFINITE, UNKNOWN, Node, Operator
from aiostream_data.plan.batch_rows import rows_of_each_batch
from aiostream_data.plan.endless import Counter, Random
from aiostream_data.plan.scan import Scan


@singledispatch
def cardinality(node: Node) -> int:
    """Return the number of elements that a node emits, :data:`INFINITE` or :data:`UNKNOWN`."""
    return UNKNOWN


def _times(rows: int, times: int | None) -> int:
    if rows == 0 or times == 0:
        return 0
    if times is None or rows == INFINITE:
        return INFINITE
    return UNKNOWN if rows == UNKNOWN else rows * times


@cardinality.register
def _(node: src.TensorSlices) -> int:
    return _times(node.rows, node.times)


@cardinality.register
def _(node: src.Tensors) -> int:
    return _times(1, node.times)


@cardinality.register
def _(node: src.Range) -> int:
    return _times(len(node.numbers), node.times)


@cardinality.register(Counter)
@cardinality.register(Random)
def _(node: Counter | Random) -> int:
    return INFINITE


@cardinality.register
def _(node: src.PythonIterable) -> int:
    return len(node.iterable) if isinstance(node.iterable, Sized) else UNKNOWN


@cardinality.register(op.Map)
@cardinality.register(op.ParseExample)
@cardinality.register(op.ParseRows)
def _(node: op.Map | op.ParseExample | op.ParseRows) -> int:
    rows = cardinality(node.input)
    return UNKNOWN if rows > 0 and may_drop(node.on_error) else rows


@cardinality.register(op.Shuffle)
@cardinality.register(Scan)
@cardinality.register(op.Enumerate)
@cardinality.register(op.Cache)
@cardinality.register(op.Prefetch)
@cardinality.register(op.ToDevice)
def _(node: Operator) -> int:
    return cardinality(node.input)


def batches_of_rows(rows: int, size: int, *, drop_remainder: bool) -> int:
    """Return the number of batches of ``size`` rows each; the last batch can be smaller."""
    if rows < 0:
        return rows
    return rows // size if drop_remainder else -(-rows // size)


@cardinality.register
def _(node: op.Batch) -> int:
    return batches_of_rows(cardinality(node.input), node.batch_size, drop_remainder=node.drop_remainder)


@cardinality.register
def _(node: op.Unbatch) -> int:
    rows = rows_of_each_batch(node.input)
    return UNKNOWN if rows is None else _times(cardinality(node.input), rows)


@cardinality.register
def _(node: op.Repeat) -> int:
    return _times(cardinality(node.input), node.count)


@cardinality.register
def _(node: op.Take) -> int:
    rows = cardinality(node.input)
    if node.count < 0:
        return rows
    if rows == INFINITE or node.count == 0:
        return node.count
    return UNKNOWN if rows == UNKNOWN else min(rows, node.count)


@cardinality.register
def _(node: op.SkipFirst) -> int:
    rows = cardinality(node.input)
    if node.count < 0:
        return 0
    return rows if rows < 0 else max(0, rows - node.count)


@cardinality.register
def _(node: op.Shard) -> int:
    rows = cardinality(node.input)
    return rows if rows < 0 else len(range(node.index, rows, node.num_shards))


@cardinality.register
def _(node: op.Zip) -> int:
    counts = [cardinality(child) for child in node.nodes]
    finite = [count for count in counts if count >= 0]
    if UNKNOWN in counts:
        return 0 if 0 in finite else UNKNOWN
    return min(finite) if finite else INFINITE


@cardinality.register
def _(node: op.Concatenate) -> int:
    counts = [cardinality(child) for child in node.nodes]
    if INFINITE in counts:
        return INFINITE
    return UNKNOWN if UNKNOWN in counts else sum(counts)
