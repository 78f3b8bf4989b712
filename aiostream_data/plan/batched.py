"""Whether the elements of a plan are batches, as far as the plan shows it."""

from __future__ import annotations

from aiostream_data.plan.base import Node, SameElements
from aiostream_data.plan.costs import CostBatch
from aiostream_data.plan.operators import Batch, Map
from aiostream_data.plan.subprocess import InSubprocess
from aiostream_data.plan.windows import Bucket, PaddedBatch, Rebatch


def gives_batches(node: Node) -> bool:
    """Return True if a batch was made below, and nothing but functions over whole batches lies between."""
    while isinstance(node, (SameElements, Map, InSubprocess)):
        node = node.input
    return isinstance(node, (Batch, PaddedBatch, CostBatch, Rebatch, Bucket))
