"""Upper bounds for the memory of rows, computed from the plan before reading."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Final

from aiostream_data.plan import operators as op
from aiostream_data.plan.asserted import AssertCardinality
from aiostream_data.plan.base import INFINITE, Node, SameElements, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.collated import CollatedBatch
from aiostream_data.plan.columns import ColumnOperator
from aiostream_data.plan.costs import CostBatch
from aiostream_data.plan.mixing import Choose, Mix
from aiostream_data.plan.resampling import RejectionResample
from aiostream_data.plan.scan import Scan
from aiostream_data.plan.spec import ArraySpec, spec_of
from aiostream_data.plan.subprocess import InSubprocess
from aiostream_data.plan.take_while import TakeWhile
from aiostream_data.plan.unique import Unique
from aiostream_data.plan.weighted_choices import WeightedChoices
from aiostream_data.plan.windows import Bucket, PaddedBatch, Rebatch, Window

COPIES: Final = 4
"""Maximum number of copies of a row per node: at the input, in a buffer, at the output, and in the next epoch."""

ROW_NBYTES: Final = 256
"""Memory overhead in bytes of a row at each node, for row ids and Python objects."""


@singledispatch
def most_nbytes(node: Node) -> int | None:
    """Return the maximum size in bytes of an element that a node emits; None if unknown before reading."""
    _, leaves = spec_of(node)
    sizes = [leaf_nbytes(leaf) for leaf in leaves]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


@most_nbytes.register(op.Batch)
@most_nbytes.register(PaddedBatch)
@most_nbytes.register(Window)
@most_nbytes.register(Rebatch)
@most_nbytes.register(Bucket)
def _(node: op.Batch | PaddedBatch | Window | Rebatch | Bucket) -> int | None:
    row, rows = most_nbytes(node.input), rows_stacked(node)
    padded = getattr(node, "padded_shapes", None) is not None  # padding may enlarge rows
    return None if row is None or rows is None or padded else row * rows


def rows_stacked(node: Node) -> int | None:
    """Return the maximum number of input rows in one stacked element; None if the node does not stack rows or has no
    limit."""
    if isinstance(node, (op.Batch, PaddedBatch, CollatedBatch)):
        return node.batch_size
    if isinstance(node, Window):
        return node.size
    if isinstance(node, Rebatch):
        return max(node.sizes)
    return max(node.batch_sizes) if isinstance(node, Bucket) else None


@most_nbytes.register
def _(node: SameElements) -> int | None:
    return most_nbytes(node.input)


def leaf_nbytes(leaf: ArraySpec) -> int | None:
    """Return the size of a leaf (array) in bytes; None for objects, for ragged rows, and if the shape or dtype is
    unknown."""
    if leaf.shape is None or leaf.dtype is None or leaf.dtype.hasobject or leaf.ragged:
        return None
    known = [axis for axis in leaf.shape if axis is not None]
    return math.prod(known) * leaf.dtype.itemsize if len(known) == len(leaf.shape) else None


FEWER: Final = (
    *(op.Filter, op.Map, op.ParseExample, op.ParseRows, op.SkipFirst, op.Shard, op.Shuffle, op.Enumerate, op.Cache),
    *(op.Prefetch, op.ToDevice, op.Batch, PaddedBatch, CostBatch, Rebatch, Window, Bucket, InSubprocess, TakeWhile),
    *(ColumnOperator, CollatedBatch),
    *(Scan, Unique, AssertCardinality),
    *(RejectionResample, WeightedChoices),
)
"""Types of nodes that emit at most as many elements as their input."""


def most_rows(node: Node) -> int | None:
    """Return the maximum number of elements that a node emits; None if infinite, or unknown before reading."""
    rows = cardinality(node)
    if rows >= 0:
        return rows
    counts = [most_rows(child) for child in node.inputs]
    known = [count for count in counts if count is not None]
    if isinstance(node, op.Take) and node.count >= 0:
        return min([node.count, *known])
    if isinstance(node, op.Zip):
        return min(known, default=None)
    if isinstance(node, Choose):
        return counts[-1]
    if len(known) < len(counts):
        return None
    if isinstance(node, op.Unbatch):
        stacked = rows_stacked(node.input)
        return None if stacked is None else sum(known) * stacked
    if isinstance(node, op.Repeat):
        return None if node.count is None else sum(known) * node.count
    return sum(known) if isinstance(node, (*FEWER, op.Take, op.Concatenate, Mix)) else None


def unknown_of(plan: Node) -> str | None:
    """Name the first node that makes :func:`all_rows_nbytes` return None. Return None if :func:`all_rows_nbytes`
    returns a number."""
    for node in walk(plan):
        if cardinality(node) == INFINITE:
            return f"{node.call()} is infinite"
        if most_rows(node) is None:
            return f"the number of elements of {node.call()} is known only once they are made"
        if most_nbytes(node) is None:
            return f"the size of an element of {node.call()} is known only once it is made"
    return None


def all_rows_nbytes(plan: Node) -> int | None:
    """Return an upper bound in bytes for the rows of all nodes together; None if unknown before reading.

    The bound assumes that no memory of rows is ever released. A running loader usually needs less memory.
    """
    total = 0
    for nodes, node in enumerate(walk(plan), 1):
        rows, row = most_rows(node), most_nbytes(node)
        if rows is None or row is None:
            return None
        total += COPIES * rows * (row + nodes * ROW_NBYTES)
    return total
