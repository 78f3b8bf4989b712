"""Find the place in a plan where each rank selects its own rows.

All operators before this place run on every rank, and must emit the same rows in the same order on all ranks. The
place should be close to the source, to avoid duplicate work. Two rules determine the place:

- *Steps*: If a plan ends in batches, followed only by operators in :data:`ON_STEPS`, ranks share the rows that go into
  the batches. Each rank applies the operators after the batching to its own batches: ``batch(8).take(100)`` is 100
  steps on every rank, and ``batch(8).repeat(2)`` shares the rows of every epoch.
- *Rows*: From that batching, or from the end of a plan without batches, the place moves toward the source, past all
  operators in :data:`ON_ROWS`.

The place never moves past an operator that drops rows on errors, since all ranks must drop the same rows. Operators
with row-dependent batch sizes must receive all rows. With buckets, ranks share the rows of each batch, so that all
ranks process the same bucket in a step. With batching by cost, ranks receive whole batches in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from aiostream_data.failing.policies import may_drop
from aiostream_data.plan import operators as op
from aiostream_data.plan import windows as win
from aiostream_data.plan.base import Node, Operator
from aiostream_data.plan.costs import CostBatch
from aiostream_data.plan.subprocess import InSubprocess

SIZED_BY_ROWS: Final = (win.Bucket, CostBatch)
"""Operators whose batch sizes depend on the rows."""

BATCHES: Final = (op.Batch, win.PaddedBatch, *SIZED_BY_ROWS)
"""Operators that put each row into exactly one batch."""

HERE: Final = (op.Prefetch, op.ToDevice)
"""Operators that pass elements through unchanged, in the process that opens the plan."""

LAST: Final = (*HERE, InSubprocess)
"""Operators that pass elements through unchanged."""

ON_STEPS: Final = (*LAST, op.Map, op.Repeat, op.Take, op.SkipFirst)
"""Operators that may follow batches shared by ranks. Each rank applies them to its own batches."""

ON_ROWS: Final = (op.Map, op.ParseExample, op.Prefetch, InSubprocess)
"""Operators that emit one row per input row, for any subset of rows. Excludes enumerate(): its indices are global."""

Change = Callable[[Node], Node]


def at_rows(plan: Node, change: Change) -> Node:
    """Apply ``change`` to the input of the final batching, or to the end of a plan without batches."""
    if batches_of(plan) is None:
        return below(plan, LAST, change)
    return at_batches(plan, lambda batch: _with_input(batch, change))


def at_batches(plan: Node, change: Change) -> Node:
    """Apply ``change`` to the node that makes the final batches of a plan."""
    return below(plan, ON_STEPS, change)


def batches_of(plan: Node) -> Node | None:
    """Return the node that makes the final batches of a plan; None if the plan does not end in batches."""
    while _crosses(plan, ON_STEPS):
        assert isinstance(plan, Operator)
        plan = plan.input
    return plan if isinstance(plan, BATCHES) else None


def below(node: Node, kinds: tuple[type[Operator], ...], change: Change) -> Node:
    """Apply ``change`` to the last node of a plan that is not one of ``kinds``, or that may drop rows on errors."""
    return _with_input(node, lambda lower: below(lower, kinds, change)) if _crosses(node, kinds) else change(node)


def _crosses(node: Node, kinds: tuple[type[Operator], ...]) -> bool:
    return isinstance(node, kinds) and not may_drop(getattr(node, "on_error", None))


def _with_input(node: Node, change: Change) -> Node:
    assert isinstance(node, Operator)
    return replace(node, input=change(node.input))


def shared_nodes(plan: Node) -> frozenset[Node]:
    """Return the nodes whose rows the ranks share. Also works for the plan of a single rank."""
    found: list[Node] = []

    def note(node: Node) -> Node:
        found.append(node)
        return node

    if isinstance(batches_of(plan), SIZED_BY_ROWS):
        at_batches(plan, note)
    else:
        at_rows(plan, lambda rows: below(rows, ON_ROWS, note))
    return frozenset(found)
