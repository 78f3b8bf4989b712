"""How many bytes rows may take, as far as the plan alone tells."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Final

from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, SameElements, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.spec import ArraySpec, spec_of

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


@most_nbytes.register
def _(node: op.Batch) -> int | None:
    row = most_nbytes(node.input)
    return None if row is None else row * node.batch_size


@most_nbytes.register
def _(node: SameElements) -> int | None:
    return most_nbytes(node.input)


def leaf_nbytes(leaf: ArraySpec) -> int | None:
    """Return the bytes of one leaf; None where its shape or type is not known, or values are objects."""
    if leaf.shape is None or leaf.dtype is None or leaf.dtype.hasobject or leaf.ragged:
        return None
    known = [axis for axis in leaf.shape if axis is not None]
    return math.prod(known) * leaf.dtype.itemsize if len(known) == len(leaf.shape) else None


def all_rows_nbytes(plan: Node) -> int | None:
    """Return what all rows of all nodes take together, had nothing been let go; None where the plan does not tell.

    Less than that is never needed for certain, and more is not possible.
    """
    total = 0
    for nodes, node in enumerate(walk(plan), 1):
        rows, row = cardinality(node), most_nbytes(node)
        if rows < 0 or row is None:
            return None
        total += COPIES * rows * (row + nodes * ROW_NBYTES)
    return total
