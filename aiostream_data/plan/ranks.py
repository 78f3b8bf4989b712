"""Build the plan for one of several ranks.

With policy "row", rank r of W ranks takes every W-th row, in the row order of a single process. The global row order
does not depend on the number of ranks. With policy "file", each rank reads every W-th file of the epoch's file order.
With policy "file", each rank has its own row order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from aiostream_data.errors import PlanError, RankError
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.costs import CostBatch
from aiostream_data.plan.rank_nodes import Agree, EqualRows, MarkPadding, RankShard
from aiostream_data.plan.rank_places import HERE, ON_ROWS, SIZED_BY_ROWS, at_batches, at_rows, batches_of, below
from aiostream_data.plan.rewrite import with_inputs
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.plan.spec import spec_of
from aiostream_data.plan.windows import Bucket
from aiostream_data.ranks import Ranks, Sharing, Tail, too_few
from aiostream_data.ranks.padding import VALID


def for_rank(plan: Node, ranks: Ranks, sharing: Sharing | None = None) -> Node:
    """Return the plan for one rank among several ranks.

    With ``tail="pad"``, elements have a padding flag even if only one rank exists, so that programs need no special
    case.

    Raises:
        PlanError: The options do not allow the ranks to share the plan.
        RankError: According to ``sharing.counts``, a rank would have no rows.
    """
    sharing = sharing or Sharing()
    return _by_file(plan, ranks, sharing) if sharing.policy == "file" else _by_row(plan, ranks, sharing.row_tail)


def check_enough_rows(plan: Node, ranks: Ranks) -> None:
    """Raise an error if a plan from :func:`for_rank` is known to have fewer rows than ranks.

    Raises:
        RankError: The plan has fewer rows than ranks.
    """
    for node in walk(plan):
        if isinstance(node, RankShard) and 0 <= (rows := cardinality(node.input)) < ranks.shares:
            raise too_few(rows, "row", ranks.shares)


def check_enough_files(files: int, share: tuple[int, int] | None) -> None:
    """Raise an error if the number of files is smaller than the number of ranks that share the files.

    Args:
        share: Pair (number, count) of the rank's share, or None if the ranks do not share the files.

    Raises:
        RankError: The number of files is smaller than the number of ranks that share the files.
    """
    if share is not None and files < share[1]:
        raise too_few(files, "file", share[1])


def of_this_rank(files: Sequence[int], share: tuple[int, int] | None) -> Sequence[int]:
    """Return the files that one rank reads, given all files in the epoch's order.

    Raises:
        RankError: The number of files is smaller than the number of ranks.
    """
    check_enough_files(len(files), share)
    return share_of(files, share)


def share_of(files: Sequence[int], share: tuple[int, int] | None) -> Sequence[int]:
    """Return every n-th file for the share (number, n). Return all files if ``share`` is None."""
    return files if share is None else files[share[0] :: share[1]]


def files_of_a_rank(files: int, share: tuple[int, int] | None) -> int:
    """Return the number of files that a rank reads."""
    return files if share is None else len(range(share[0], files, share[1]))


def _by_row(plan: Node, ranks: Ranks, tail: Tail) -> Node:
    def share(node: Node) -> Node:
        if ranks.shares == 1:
            return node
        _check_one_order(node)
        return RankShard(input=node, rank=ranks.share, world_size=ranks.shares, tail=tail)

    batches = batches_of(plan)
    if isinstance(batches, Bucket):
        return at_batches(plan, lambda node: _marked(_shared_buckets(node, ranks, tail), tail, batches=True))
    if isinstance(batches, CostBatch):
        return at_batches(plan, lambda node: _marked(share(node), tail, batches=True))
    return at_rows(plan, lambda rows: _marked(below(rows, ON_ROWS, share), tail))


def _shared_buckets(node: Node, ranks: Ranks, tail: Tail) -> Node:
    assert isinstance(node, Bucket)
    if ranks.shares == 1:
        return node
    _check_one_order(node)
    sizes = tuple(size * ranks.shares for size in node.batch_sizes)
    return replace(node, batch_sizes=sizes, share=(ranks.share, ranks.shares), tail=tail)


def _check_one_order(node: Node) -> None:
    for lower in walk(node):
        if not getattr(lower, "ordered", True):
            raise PlanError(
                f"{lower.label} with ordered=False has another order on every rank, so rows would be lost or "
                "duplicated. Set ordered=True, or use policy='file'"
            )


def _by_file(plan: Node, ranks: Ranks, sharing: Sharing) -> Node:
    shared = _with_shared_files(plan, (ranks.share, ranks.shares)) if ranks.shares > 1 else plan
    tail, counts, consensus = sharing.tail, sharing.counts, sharing.consensus
    if tail is None:
        return shared
    if counts is not None:
        if isinstance(batches_of(plan), SIZED_BY_ROWS):
            raise PlanError("counts= does not support batches whose sizes depend on their rows. Use consensus=, or "
                            "policy='row'")  # fmt: skip
        equal = _equal_rows(counts, ranks, tail)
        return at_rows(shared, lambda rows: _marked(below(rows, ON_ROWS, equal), tail))
    assert consensus is not None
    batches = batches_of(plan) is not None
    return below(shared, HERE, lambda node: _marked(Agree(input=node, consensus=consensus, tail=tail), tail, batches))


def _with_shared_files(node: Node, share: tuple[int, int]) -> Node:
    if isinstance(node, (ReadFiles, ListFiles)):
        return replace(node, share=share)
    if not node.inputs:
        raise PlanError(f"policy='file' shares files, but {node.label} has none. Use policy='row'")
    return with_inputs(node, lambda child: _with_shared_files(child, share))


def _equal_rows(counts: Sequence[int], ranks: Ranks, tail: Tail) -> Callable[[Node], Node]:
    if len(counts) != ranks.shares:
        raise PlanError(f"counts must have one number per share of the files ({ranks.shares}), got {len(counts)}")
    if min(counts) == 0:
        raise RankError(f"share {counts.index(0)} of the files has no rows, according to counts={list(counts)}")
    rows = min(counts) if tail == "drop" else max(counts)
    return lambda node: EqualRows(input=node, rows=rows, own=counts[ranks.share], tail=tail)


def _marked(node: Node, tail: Tail, batches: bool = False) -> Node:
    if tail != "pad":
        return node
    structure, _ = spec_of(node)
    if structure.kind == "dict" and VALID in structure.names:
        raise PlanError(f"tail='pad' adds {VALID!r} to every element, and the elements have {VALID!r} already")
    return MarkPadding(input=node, batches=batches)
