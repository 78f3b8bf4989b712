"""Where in a plan several processes share the rows, so that together they give one order.

The processes are those of ``in_subprocess``, or the workers of PyTorch's DataLoader.

How this works. Worker k of n makes elements k, k + n, k + 2n, ... of the stream, and whoever
reads them deals them out in turn. Each worker runs the plan from its sources on, and leaves out what is not its own as
low in the plan as nothing above changes the order or the number of rows: below what gives one row per row, and below
batches, where rows are shared in blocks of a batch, so that batches are those of one process. What stands below that
place (reading, shuffling, filtering) is done by every worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aiostream_data.errors import PlanError
from aiostream_data.failing.policies import handling_of, may_drop
from aiostream_data.plan.base import Node, Operator, walk
from aiostream_data.plan.operators import Batch, Map, ParseExample, ParseRows
from aiostream_data.plan.rank_nodes import MarkPadding
from aiostream_data.plan.rows import keeps_rows
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.plan.subprocess import InSubprocess, LoaderShard, WorkerShard
from aiostream_data.plan.windows import PaddedBatch


def for_worker(plan: Node, index: int, workers: int) -> Node:
    """Return the plan that one of several workers runs, for the elements that are its own.

    Args:
        plan: The input of :class:`InSubprocess`, after it was rewritten.
    """
    if workers == 1:
        return plan
    return _shared(plan, lambda node, block: WorkerShard(input=node, index=index, workers=workers, block=block))


def for_loader_worker(plan: Node, index: int, workers: int) -> Node:
    """Return the plan that one of several workers of a DataLoader runs, for the elements that are its own.

    Raises:
        PlanError: The workers would not have the same order.
    """
    if workers == 1:
        return plan

    def share(node: Node, block: int) -> Node:
        for lower in walk(node):
            if not getattr(lower, "ordered", True):
                raise PlanError(
                    f"{lower.label} with ordered=False gives every worker of the DataLoader another order, so that "
                    "rows would be lost or given twice: leave it ordered, or use policy='file'"
                )
        return LoaderShard(input=node, index=index, workers=workers, block=block)

    return _shared(plan, share, crosses=_gives_each_row_one)


def check_shared(node: InSubprocess) -> None:
    """Refuse workers each of which would leave out, count and log the same records.

    Raises:
        PlanError: What all of them run has an error policy.
    """
    if node.workers == 1:
        return
    for lower in walk(place_of_sharing(node.input)):
        # Sources read everything in every worker: their counters count so, and the log has each loss once.
        if not isinstance(lower, ReadFiles) and handling_of(getattr(lower, "on_error", None)).kind != "raise":
            raise PlanError(
                f"in_subprocess(workers={node.workers}): {lower.label} has on_error=, and every worker would run it on "
                "all records and log them; use workers=1, or map() it directly before batch() with Replace"
            )


def place_of_sharing(plan: Node) -> Node:
    """Return the node whose rows workers share; every one of them does what that node and all below it do."""
    found: list[Node] = []

    def note(node: Node, block: int) -> Node:
        found.append(node)
        return node

    _shared(plan, note)
    return found[0]


def _keeps_rows(node: Node) -> bool:
    return keeps_rows(node) or isinstance(node, MarkPadding)


def _gives_each_row_one(node: Node) -> bool:
    """Return the same for nodes that need not keep the order of one worker's rows."""
    row_wise = isinstance(node, (Map, ParseRows)) and not may_drop(node.on_error)
    return _keeps_rows(node) or row_wise or isinstance(node, InSubprocess)


def _shared(
    node: Node, share: Callable[[Node, int], Node], block: int = 1, crosses: Callable[[Node], bool] = _keeps_rows
) -> Node:
    if isinstance(node, ReadFiles) and node.decoders:
        # Parsing was drawn into the reading, which every worker does; the rows of others need not be parsed.
        plain = share(replace(node, decoders=()), block)
        for decoder in node.decoders:
            plain = ParseExample(input=plain, decoder=decoder, features=())
        return plain
    if isinstance(node, (Batch, PaddedBatch)):
        return replace(node, input=_shared(node.input, share, block * node.batch_size, crosses))
    if isinstance(node, Operator) and crosses(node):
        return replace(node, input=_shared(node.input, share, block, crosses))
    return share(node, block)
