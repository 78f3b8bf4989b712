"""Size limit of a saved state: a fixed part, and parts for ids of buffered rows and for values of user functions."""

from __future__ import annotations

from aiostream_data._engine.resume.user_values import MAX_NBYTES
from aiostream_data.plan.aggregate import Aggregate
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Prefetch
from aiostream_data.plan.scan import Scan
from aiostream_data.plan.unique import Unique

STATE_NBYTES = 4096
"""Maximum size in bytes of a state as JSON, excluding buffered rows."""

HELD_ROW_NBYTES = 8
"""Additional bytes in a state for each row that an operator may buffer."""

_HOLDING = ("buffer_size", "buffer_rows", "batch_size")
"""Names of operator arguments that limit the number of buffered elements."""


def allowed_state_nbytes(plan: Node) -> int:
    """Return the maximum state size of this plan.

    The size is 4 KB, plus 8 bytes for each row that operators may buffer, plus 16 KB for each ``scan``, ``aggregate``
    and ``unique``.
    """
    values = MAX_NBYTES * sum(isinstance(node, (Aggregate, Scan, Unique)) for node in walk(plan))
    return STATE_NBYTES + HELD_ROW_NBYTES * _held_rows(plan)[0] + values


def _held_rows(node: Node) -> tuple[int, int]:
    """Return the number of rows that a plan's operators may buffer, and the number of rows in one element."""
    inputs = [_held_rows(child) for child in node.inputs]
    held = sum(rows for rows, _ in inputs)
    per_element = max((rows for _, rows in inputs), default=1)
    if not isinstance(node, Prefetch):  # prefetched elements are not in the state; they are read again
        held += per_element * max(_size(node, name) for name in _HOLDING)
    return held, per_element * max(1, _size(node, "batch_size"))


def _size(node: Node, name: str) -> int:
    size = getattr(node, name, 0)
    return size if isinstance(size, int) else 0
