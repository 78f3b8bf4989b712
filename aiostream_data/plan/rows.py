"""Detect nodes that emit exactly one row per input row."""

from __future__ import annotations

from aiostream_data.failing.policies import may_drop
from aiostream_data.plan.base import Node
from aiostream_data.plan.columns import ColumnOperator
from aiostream_data.plan.operators import Map, ParseExample, ParseRows, Prefetch, ToDevice


def keeps_rows(node: Node) -> bool:
    """Return True if a node emits exactly one row per input row, in order, even if it receives only some of the rows.

    Return False for enumerate(), because its indices depend on all earlier rows.
    """
    if isinstance(node, (Prefetch, ToDevice, ColumnOperator)):
        return True
    return (
        isinstance(node, (Map, ParseExample, ParseRows))
        and getattr(node, "ordered", True)
        and not may_drop(node.on_error)
    )
