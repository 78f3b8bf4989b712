"""Number of rows of each batch, where a plan determines it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, SameElements
from aiostream_data.plan.sources import TensorSlices
from aiostream_data.rows.columns import Column, VarColumn


@singledispatch
def rows_of_each_batch(node: Node) -> int | None:
    """Return the number of rows that every element has along its first axis, or None if it is not known or differs."""
    return None


@rows_of_each_batch.register
def _(node: SameElements) -> int | None:
    return rows_of_each_batch(node.input)


@rows_of_each_batch.register
def _(node: op.Batch) -> int | None:
    return node.batch_size if node.drop_remainder else None


@rows_of_each_batch.register
def _(node: op.Concatenate) -> int | None:
    return only_one(rows_of_each_batch(child) for child in node.nodes)


@rows_of_each_batch.register
def _(node: TensorSlices) -> int | None:
    return only_one(_rows_of_each_row(leaf) for leaf in node.leaves)


def only_one(sizes: Iterable[int | None]) -> int | None:
    """Return the size if all sizes are equal, otherwise None."""
    found = set(sizes)
    return found.pop() if len(found) == 1 else None


def _rows_of_each_row(leaf: Column) -> int | None:
    return None if isinstance(leaf, VarColumn) or leaf.ndim < 2 else leaf.shape[1]
