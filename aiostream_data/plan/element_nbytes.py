"""How many bytes rows may take, as far as the plan alone tells."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Final

from aiostream_data.plan import operators as op
from aiostream_data.plan.base import INFINITE, Node, SameElements, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.costs import CostBatch
from aiostream_data.plan.mixing import Choose, Mix
from aiostream_data.plan.spec import ArraySpec, spec_of
from aiostream_data.plan.subprocess import InSubprocess
from aiostream_data.plan.take_while import TakeWhile
from aiostream_data.plan.windows import Bucket, PaddedBatch, Rebatch, Window

COPIES: Final = 4
"""How often a row may be there at once for each node: as it came, in a buffer, as it goes, and in the next epoch."""

ROW_NBYTES: Final = 256
"""Of a row beside its values, for each node that it has passed: ids, and the objects that stand for it."""


@singledispatch
def most_nbytes(node: Node) -> int | None:
    """Return the most bytes that one element of a node may take; None where the plan does not tell."""
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
    padded = getattr(node, "padded_shapes", None) is not None  # rows may become larger than they are
    return None if row is None or rows is None or padded else row * rows


def rows_stacked(node: Node) -> int | None:
    """Return the most rows of the input that one element is made of; None where the node stacks none, or any number."""
    if isinstance(node, (op.Batch, PaddedBatch)):
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
    """Return the bytes of one leaf; None where its shape or type is not known, or values are objects."""
    if leaf.shape is None or leaf.dtype is None or leaf.dtype.hasobject or leaf.ragged:
        return None
    known = [axis for axis in leaf.shape if axis is not None]
    return math.prod(known) * leaf.dtype.itemsize if len(known) == len(leaf.shape) else None


FEWER: Final = (
    *(op.Filter, op.Map, op.ParseExample, op.ParseRows, op.Skip, op.Shard, op.Shuffle, op.Enumerate, op.Cache),
    *(op.Prefetch, op.ToDevice, op.Batch, PaddedBatch, CostBatch, Rebatch, Window, Bucket, InSubprocess, TakeWhile),
)
"""Nodes that give no more elements than their input has."""


def most_rows(node: Node) -> int | None:
    """Return the most elements that a node gives; None where the plan does not tell, or there is no end."""
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
    """Return why the plan does not tell what all rows take: of the first node that does not; None where it does."""
    for node in walk(plan):
        if cardinality(node) == INFINITE:
            return f"{node.call()} has no end"
        if most_rows(node) is None:
            return f"the number of elements of {node.call()} is known only once they are made"
        if most_nbytes(node) is None:
            return f"the size of an element of {node.call()} is known only once it is made"
    return None


def all_rows_nbytes(plan: Node) -> int | None:
    """Return what all rows of all nodes take together, had nothing been let go; None where the plan does not tell.

    Less than that is never needed for certain, and more is not possible.
    """
    total = 0
    for nodes, node in enumerate(walk(plan), 1):
        rows, row = most_rows(node), most_nbytes(node)
        if rows is None or row is None:
            return None
        total += COPIES * rows * (row + nodes * ROW_NBYTES)
    return total
