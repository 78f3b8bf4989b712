"""Which nodes give one row for every row they take."""

from __future__ import annotations

from aiostream_data.failing.policies import may_drop
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Map, ParseExample, ParseRows, Prefetch, ToDevice


def keeps_rows(node: Node) -> bool:
    """Return True if a node gives exactly one row per row, in order, whichever rows it is given.

    Not enumerate(), whose numbers depend on all rows before.
    """
    if isinstance(node, (Prefetch, ToDevice)):
        return True
    return (
        isinstance(node, (Map, ParseExample, ParseRows))
        and getattr(node, "ordered", True)
        and not may_drop(node.on_error)
    )
