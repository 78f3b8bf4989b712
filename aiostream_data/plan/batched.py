"""Detect plans whose elements are batches."""

from __future__ import annotations

from aiostream_data.plan.base import Node, SameElements
from aiostream_data.plan.collated import CollatedBatch
from aiostream_data.plan.columns import ColumnOperator
from aiostream_data.plan.costs import CostBatch
from aiostream_data.plan.operators import Batch, Map
from aiostream_data.plan.subprocess import InSubprocess
from aiostream_data.plan.windows import Bucket, PaddedBatch, Rebatch


def gives_batches(node: Node) -> bool:
    """Return True if the plan makes batches and all later operators process only complete batches."""
    while isinstance(node, (SameElements, Map, InSubprocess, ColumnOperator)):
        node = node.input
    return isinstance(node, (Batch, CollatedBatch, PaddedBatch, CostBatch, Rebatch, Bucket))
