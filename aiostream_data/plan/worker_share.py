"""Find the position in a plan at which its rows are divided among the workers.

Together, all workers produce the same row order as a single process.

Workers are the processes of ``in_subprocess``, or the worker processes of PyTorch's DataLoader.

Worker k of n workers makes elements k, k + n, k + 2n, ... of the stream. The reader takes elements from the workers in
turn. Each worker runs the plan from its sources, and drops other workers' rows as early as possible. Rows are dropped
before batching, and before operators that emit one row per input row. If rows are dropped before batching, each worker
keeps whole blocks of rows, each as large as one batch. Batches therefore contain the same rows as in a single process.
All operators before the dividing position, such as reading, shuffling and filtering, run in every worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aiostream_data.errors import PlanError
from aiostream_data.failing.policies import handling_of, may_drop
from aiostream_data.plan.base import Node, Operator, walk
from aiostream_data.plan.collated import CollatedBatch
from aiostream_data.plan.operators import Batch, Map, ParseExample, ParseRows
from aiostream_data.plan.rank_nodes import MarkPadding
from aiostream_data.plan.rows import keeps_rows
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.plan.subprocess import InSubprocess, LoaderShard, WorkerShard
from aiostream_data.plan.windows import PaddedBatch


def for_worker(plan: Node, index: int, workers: int) -> Node:
    """Return the plan for one worker of ``in_subprocess``. The resulting plan makes only the elements of this worker.

    Args:
        plan: Input of an :class:`InSubprocess` node, after rewriting.
        index: Number of the worker, from 0.
        workers: Number of workers.
    """
    if workers == 1:
        return plan
    return _shared(plan, lambda node, block: WorkerShard(input=node, index=index, workers=workers, block=block))


def for_loader_worker(plan: Node, index: int, workers: int) -> Node:
    """Return the plan for one worker of a DataLoader. The resulting plan makes only the elements of this worker.

    Raises:
        PlanError: A stage that runs in every worker has ``ordered=False``, so each worker would have a different order.
    """
    if workers == 1:
        return plan

    def share(node: Node, block: int) -> Node:
        for lower in walk(node):
            if not getattr(lower, "ordered", True):
                raise PlanError(
                    f"{lower.label} with ordered=False has another order in every worker of the DataLoader, so rows "
                    "would be lost or duplicated. Set ordered=True, or use policy='file'"
                )
        return LoaderShard(input=node, index=index, workers=workers, block=block)

    return _shared(plan, share, crosses=_gives_each_row_one)


def check_shared(node: InSubprocess) -> None:
    """Raise an error if every worker would skip, count and log the same failed records.

    Raises:
        PlanError: An operator that runs in every worker has an error policy.
    """
    if node.workers == 1:
        return
    for lower in walk(place_of_sharing(node.input)):
        # File sources may have a policy: all workers read all files, and the log keeps each loss once.
        if not isinstance(lower, ReadFiles) and handling_of(getattr(lower, "on_error", None)).kind != "raise":
            raise PlanError(
                f"in_subprocess(workers={node.workers}) does not support on_error= of {lower.label}: every worker "
                "would log the same records. Use workers=1, or Replace in a map() directly before batch()"
            )


def place_of_sharing(plan: Node) -> Node:
    """Return the node whose output rows are divided among the workers.

    Every worker runs this node and all nodes before it.
    """
    found: list[Node] = []

    def note(node: Node, block: int) -> Node:
        found.append(node)
        return node

    _shared(plan, note)
    return found[0]


def _keeps_rows(node: Node) -> bool:
    return keeps_rows(node) or isinstance(node, MarkPadding)


def _gives_each_row_one(node: Node) -> bool:
    """Return True if a node emits one row per input row, in any order. :func:`_keeps_rows` requires the same order."""
    row_wise = isinstance(node, (Map, ParseRows)) and not may_drop(node.on_error)
    return _keeps_rows(node) or row_wise or isinstance(node, InSubprocess)


def _shared(
    node: Node, share: Callable[[Node, int], Node], block: int = 1, crosses: Callable[[Node], bool] = _keeps_rows
) -> Node:
    if isinstance(node, ReadFiles) and node.decoders:
        # A rewrite moved parsing into the reader, which runs in every worker. Move it out, to parse only own rows.
        plain = share(replace(node, decoders=()), block)
        for decoder in node.decoders:
            plain = ParseExample(input=plain, decoder=decoder, features=())
        return plain
    if isinstance(node, (Batch, PaddedBatch, CollatedBatch)):
        return replace(node, input=_shared(node.input, share, block * node.batch_size, crosses))
    if isinstance(node, Operator) and crosses(node):
        return replace(node, input=_shared(node.input, share, block, crosses))
    return share(node, block)
