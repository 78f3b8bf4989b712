"""Find the place in a plan where the rows of several ranks part.

How this works. The lower the ranks part, the less work they do twice; so they part below all that gives one row per
row, and above everything else, since the order and the number of rows must be the same on all of them. Two rules
give the place. *Steps*: where a plan ends in batches, and does nothing to them but what :data:`ON_STEPS` lists,
the ranks share the rows that go into batches, and all that comes after them happens to every rank's own batches:
``batch(8).take(100)`` is 100 steps on every rank, and ``batch(8).repeat(2)`` shares the rows of every epoch. *Rows*:
from there, or from the end of a plan without batches, the ranks part below what :data:`ON_ROWS` lists. What leaves
rows out on an error is never crossed: how many it leaves out must be the same on all ranks. Only what looks at rows
to decide how many go into a batch must know all of them. There the ranks share every batch of buckets, so that in one
step they all have one of the same bucket; and they take turns with batches by cost, each of which one rank gets.
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
"""What makes batches of so many rows as the rows themselves say."""

BATCHES: Final = (op.Batch, win.PaddedBatch, *SIZED_BY_ROWS)
"""What makes batches out of rows, each row of one batch."""

HERE: Final = (op.Prefetch, op.ToDevice)
"""What hands elements on as they are, in the process that opens the plan."""

LAST: Final = (*HERE, InSubprocess)
"""What hands elements on as they are."""

ON_STEPS: Final = (*LAST, op.Map, op.Repeat, op.Take, op.Skip)
"""What may follow the batches that ranks share: it happens to every rank's own."""

ON_ROWS: Final = (op.Map, op.ParseExample, op.Prefetch, InSubprocess)
"""What gives one row per row, whichever rows it is given. Not enumerate(), whose numbers are global."""

Change = Callable[[Node], Node]


def at_rows(plan: Node, change: Change) -> Node:
    """Return the plan with what goes into its last batches changed; of a plan without batches, what it gives."""
    if batches_of(plan) is None:
        return below(plan, LAST, change)
    return at_batches(plan, lambda batch: _with_input(batch, change))


def at_batches(plan: Node, change: Change) -> Node:
    """Return the plan with the node changed that makes the batches in which it ends."""
    return below(plan, ON_STEPS, change)


def batches_of(plan: Node) -> Node | None:
    """Return the node that makes the batches in which a plan ends, and that ranks may have of their own."""
    while _crosses(plan, ON_STEPS):
        assert isinstance(plan, Operator)
        plan = plan.input
    return plan if isinstance(plan, BATCHES) else None


def below(node: Node, kinds: tuple[type[Operator], ...], change: Change) -> Node:
    """Return the plan with the first node from the end that is of none of these kinds changed."""
    return _with_input(node, lambda lower: below(lower, kinds, change)) if _crosses(node, kinds) else change(node)


def _crosses(node: Node, kinds: tuple[type[Operator], ...]) -> bool:
    return isinstance(node, kinds) and not may_drop(getattr(node, "on_error", None))


def _with_input(node: Node, change: Change) -> Node:
    assert isinstance(node, Operator)
    return replace(node, input=change(node.input))


def shared_nodes(plan: Node) -> frozenset[Node]:
    """Return the nodes whose rows ranks share, wherever a plan of one or of several ranks has them."""
    found: list[Node] = []

    def note(node: Node) -> Node:
        found.append(node)
        return node

    if isinstance(batches_of(plan), SIZED_BY_ROWS):
        at_batches(plan, note)
    else:
        at_rows(plan, lambda rows: below(rows, ON_ROWS, note))
    return frozenset(found)
