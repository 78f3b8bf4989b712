"""What a state may be large: a fixed part, and the ids of the rows that operators hold back."""

from __future__ import annotations

from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Prefetch

STATE_NBYTES = 4096
"""What a state may be large, as JSON, beside the rows that operators hold back."""

HELD_ROW_NBYTES = 8
"""What each row that an operator may hold back adds."""

_HOLDING = ("buffer_size", "buffer_rows", "batch_size")
"""Arguments of operators that say how many elements they may hold back."""


def allowed_state_nbytes(plan: Node) -> int:
    """Return what a state of this plan may be large: 4 KB and 8 bytes per row that it may hold back."""
    return STATE_NBYTES + HELD_ROW_NBYTES * _held_rows(plan)[0]


def _held_rows(node: Node) -> tuple[int, int]:
    """Return the rows that a plan's operators may hold back, and the rows that an element is made of."""
    inputs = [_held_rows(child) for child in node.inputs]
    held = sum(rows for rows, _ in inputs)
    per_element = max((rows for _, rows in inputs), default=1)
    if not isinstance(node, Prefetch):  # what it holds was not asked for yet, and is read again
        held += per_element * max(_size(node, name) for name in _HOLDING)
    return held, per_element * max(1, _size(node, "batch_size"))


def _size(node: Node, name: str) -> int:
    size = getattr(node, name, 0)
    return size if isinstance(size, int) else 0
