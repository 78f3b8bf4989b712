"""Number of rows of each batch, where a plan determines it."""

from __future__ import annotations

from aiostream_data.plan.base import Node, SameElements
from aiostream_data.plan.operators import Batch, Concatenate
from aiostream_data.plan.sources import TensorSlices
from aiostream_data.rows.columns import Column, VarColumn


def rows_of_each_batch(node: Node) -> int | None:
    """Return the number of rows that every element has along its first axis, or None if it is not known or differs."""
    while isinstance(node, SameElements):
        node = node.input
    found: set[int | None] = {None}
    if isinstance(node, Concatenate):
        found = {rows_of_each_batch(child) for child in node.nodes}
    elif isinstance(node, Batch) and node.drop_remainder:
        found = {node.batch_size}
    elif isinstance(node, TensorSlices):
        found = {_rows_of_each_row(leaf) for leaf in node.leaves}
    return found.pop() if len(found) == 1 else None


def _rows_of_each_row(leaf: Column) -> int | None:
    return None if isinstance(leaf, VarColumn) or leaf.ndim < 2 else leaf.shape[1]
