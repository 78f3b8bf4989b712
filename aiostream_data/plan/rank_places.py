"""Find the position in a plan where each rank selects its own rows.

All operators before this position run on every rank, and must emit the same rows in the same order on all ranks. The
position should be close to the source, so that ranks repeat little work. Two rules determine the position:

- *Steps*: If a plan ends in batches, followed only by operators in :data:`ON_STEPS`, ranks share the rows that form the
  batches. Each rank applies the later operators to its own batches. For example, ``batch(8).take(100)`` makes 100 steps
  on every rank, and ``batch(8).repeat(2)`` shares the rows of every epoch.
- *Rows*: The position starts at the batching, or at the end of a plan without batches. The position then moves toward
  the source, past all operators in :data:`ON_ROWS`.

The position never moves past an operator that drops rows on errors, because all ranks must drop the same rows.
Operators whose batch sizes depend on the rows must receive all rows. With buckets, the ranks share the rows of each
batch. All ranks therefore process the same bucket in a step. With batching by cost, complete batches are distributed to
the ranks in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from aiostream_data.failing.policies import may_drop
from aiostream_data.plan import operators as op
from aiostream_data.plan import windows as win
from aiostream_data.plan.base import Node, Operator
from aiostream_data.plan.collated import CollatedBatch
from aiostream_data.plan.columns import ColumnOperator
from aiostream_data.plan.costs import CostBatch
from aiostream_data.plan.subprocess import InSubprocess

SIZED_BY_ROWS: Final = (win.Bucket, CostBatch)
"""Operators whose batch sizes depend on the contents of the rows."""

BATCHES: Final = (op.Batch, CollatedBatch, win.PaddedBatch, *SIZED_BY_ROWS)
"""Operators that put each row into exactly one batch."""

HERE: Final = (op.Prefetch, op.ToDevice)
"""Operators that run in the process that opens the plan, and do not change elements."""

LAST: Final = (*HERE, InSubprocess)
"""Operators that do not change elements."""

ON_STEPS: Final = (*LAST, op.Map, ColumnOperator, op.Repeat, op.Take, op.SkipFirst)
"""Operators that may follow the batching if ranks share batches. Each rank applies operators after the batching to its
own batches."""

ON_ROWS: Final = (op.Map, ColumnOperator, op.ParseExample, op.Prefetch, InSubprocess)
"""Operators that emit one row per input row, even if they receive only some of the rows. The operator enumerate() is
excluded, because its indices count the rows of all ranks."""

Change = Callable[[Node], Node]


def at_rows(plan: Node, change: Change) -> Node:
    """Apply ``change`` to the input of the last batching, or to the end of a plan without batches."""
    if batches_of(plan) is None:
        return below(plan, LAST, change)
    return at_batches(plan, lambda batch: _with_input(batch, change))


def at_batches(plan: Node, change: Change) -> Node:
    """Apply ``change`` to the node that makes the last batches of a plan."""
    return below(plan, ON_STEPS, change)


def batches_of(plan: Node) -> Node | None:
    """Return the node that makes the last batches of a plan; None if the plan does not end in batches."""
    while _crosses(plan, ON_STEPS):
        assert isinstance(plan, Operator)
        plan = plan.input
    return plan if isinstance(plan, BATCHES) else None


def below(node: Node, kinds: tuple[type[Operator], ...], change: Change) -> Node:
    """Search from the end of a plan for a node that is not in ``kinds`` or may drop rows on errors.

    Apply ``change`` to it.
    """
    return _with_input(node, lambda lower: below(lower, kinds, change)) if _crosses(node, kinds) else change(node)


def _crosses(node: Node, kinds: tuple[type[Operator], ...]) -> bool:
    return isinstance(node, kinds) and not may_drop(getattr(node, "on_error", None))


def _with_input(node: Node, change: Change) -> Node:
    assert isinstance(node, Operator)
    return replace(node, input=change(node.input))


def shared_nodes(plan: Node) -> frozenset[Node]:
    """Return the nodes whose output rows are divided among the ranks.

    :func:`shared_nodes` also accepts the plan of a single rank.
    """
    found: list[Node] = []

    def note(node: Node) -> Node:
        found.append(node)
        return node

    if isinstance(batches_of(plan), SIZED_BY_ROWS):
        at_batches(plan, note)
    else:
        at_rows(plan, lambda rows: below(rows, ON_ROWS, note))
    return frozenset(found)
