"""Rewrite a plan so that it runs faster. The elements of the plan, their order and the errors do not change.

One exception is the order of ``shuffle()`` without a buffer size, or with a buffer for all rows of data in memory. The
rewrite defines this order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any, cast

from aiostream_data.failing.policies import OnError, handling_of, policy_for_sources
from aiostream_data.plan.base import Node, SameElements
from aiostream_data.plan.keyed import WindowItems
from aiostream_data.plan.operators import (
    Batch,
    Call,
    Interleave,
    Map,
    ParseExample,
    ParseRows,
    Prefetch,
    Repeat,
    Shuffle,
    ToDevice,
)
from aiostream_data.plan.rank_nodes import RankShard
from aiostream_data.plan.shuffling import chosen_shuffle
from aiostream_data.plan.sources import ListFiles, Range, ReadFiles, Tensors, TensorSlices
from aiostream_data.plan.subprocess import InSubprocess, LoaderShard
from aiostream_data.plan.tables import reads_files
from aiostream_data.plan.windows import Bucket, PaddedBatch


class OncePerNode:
    """Calls a function once for each node of a plan, so that a node that is used in two places remains a single node.

    A nested function that calls itself would keep all nodes, and the data of their sources, until a garbage collection.

    Args:
        change: Function ``change(node, visit)`` that returns the new node. It calls ``visit`` for each input of a node.
    """

    def __init__(self, change: Callable[[Node, Callable[[Node], Node]], Node]) -> None:
        self._change = change
        self._done: dict[Node, Node] = {}

    def __call__(self, node: Node) -> Node:
        if node not in self._done:
            self._done[node] = self._change(node, self)
        return self._done[node]


def rewrite(node: Node) -> Node:
    """Return an equivalent plan. The rewrite proceeds from the sources to the end of the plan."""
    return OncePerNode(lambda node, visit: _rewrite_one(with_inputs(node, visit)))(node)


def replaced(plan: Node, replacement: Callable[[Node], Node | None]) -> Node:
    """Return the plan with each node for which ``replacement`` returns another one. The inputs of such nodes stay.

    A node that is used in two places remains a single node, and ``replacement`` is called once for it.
    """

    def change(node: Node, visit: Callable[[Node], Node]) -> Node:
        found = replacement(node)
        return with_inputs(node, visit) if found is None else found

    return OncePerNode(change)(plan)


def unordered(node: Node) -> Node:
    """Return the plan with ``ordered=False`` in every stage. The plan emits the same elements in any order.

    Stages before the rows are divided among ranks or worker processes keep their order, because the order determines
    each share.
    """
    if isinstance(node, (RankShard, LoaderShard)) or (isinstance(node, InSubprocess) and node.workers > 1):
        return node
    node = with_inputs(node, unordered)
    return replace(node, ordered=False) if isinstance(node, (Map, Interleave, ReadFiles)) else node


def with_policy(node: Node, policy: OnError) -> Node:
    """Return a copy of the plan in which each stage without an error policy uses the given policy."""
    return _with_own_policy(with_inputs(node, lambda child: with_policy(child, policy)), policy)


def with_policy_so_far(plan: Node, policy: OnError) -> Node:
    """Do the same as :func:`with_policy` for a plan to which operators are still added.

    A node that is used in two places remains a single node.
    """
    return OncePerNode(lambda node, visit: _with_own_policy(with_inputs(node, visit), policy))(plan)


def _with_own_policy(node: Node, policy: OnError) -> Node:
    if isinstance(node, Interleave) and reads_files(node.function):
        return replace(node, function=node.function.with_default_policy(policy_for_sources(policy)))
    if isinstance(node, (Call, Interleave, ParseExample)) and node.on_error is None:
        return replace(node, on_error=policy)
    if isinstance(node, ReadFiles) and node.on_error is None:
        return replace(node, on_error=policy_for_sources(policy))
    return node


def with_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """Apply ``change`` to every input of a node. If no input changed, return the node itself."""
    changed: dict[str, Any] = {}
    new: Any
    for name in _field_names(cast(Any, type(node))):
        value = getattr(node, name)
        if isinstance(value, Node):
            new = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            new = tuple(change(child) for child in value)
        else:
            continue
        if new is not value and new != value:
            changed[name] = new
    return replace(node, **changed) if changed else node


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind))


def _rewrite_one(node: Node) -> Node:
    if isinstance(node, ParseExample) and isinstance(node.input, ReadFiles) and _may_be_fused(node, node.input):
        # Parsing is row-wise, so it commutes with interleaving files and shares the reader's hop.
        return replace(node.input, decoders=(node.decoder,))
    if isinstance(node, ParseExample) and handling_of(node.on_error).interferes:
        return ParseRows(input=node.input, decoder=node.decoder, name=node.name, on_error=node.on_error)
    if isinstance(node, Interleave) and reads_files(node.function):
        skips = handling_of(node.function.on_error).kind == "skip"
        return replace(node, input=_with_missing_files(node.input)) if skips else node
    if isinstance(node, Repeat):
        return _with_times(node.input, node.count) or node
    if isinstance(node, Shuffle):
        return chosen_shuffle(node)
    if isinstance(node, Prefetch) and isinstance(node.input, Prefetch):
        return replace(node, input=node.input.input)
    if isinstance(node, ToDevice):
        # Assemble batches directly in the device slot, so that rows are copied only once.
        return replace(node, input=batches_in_parts(node.input, 0))
    return node


def _with_missing_files(node: Node) -> Node:
    """Let a list of files keep the names of missing files, because the reader of the files counts them as losses."""
    if isinstance(node, ListFiles):
        return replace(node, keeps_missing=True)
    return with_inputs(node, _with_missing_files) if isinstance(node, SameElements) else node


def _may_be_fused(node: ParseExample, source: ReadFiles) -> bool:
    # Skipped and replaced records must be counted by a separate stage; the source counts only its own rows.
    return not source.decoders and not handling_of(node.on_error).interferes


def _with_times(node: Node, count: int | None) -> Node | None:
    """Let an in-memory source repeat its rows itself, instead of using a ``repeat`` node.

    Return None if the source is not in memory.

    An in-memory source need not restart in every epoch, and neither need ``map()`` behind it. The search for the source
    skips nodes that do not affect rows, because states and random keys do not depend on these nodes.
    """
    if isinstance(node, (Tensors, TensorSlices, Range, WindowItems)):
        return replace(node, times=_times(node.times, count))
    if isinstance(node, (Prefetch, InSubprocess)) or (isinstance(node, Map) and _ignores_epochs(node)):
        source = _with_times(node.input, count)
        if source is None:
            return None
        return replace(node, input=source, keeps_epochs=True) if isinstance(node, Map) else replace(node, input=source)
    return None


def _ignores_epochs(node: Map) -> bool:
    """Return True if ``map()`` returns one result per element, the same in each epoch.

    With an error policy, an endless repetition can be without elements, which ``repeat`` reports.
    """
    is_plain = not (node.wants_rng or node.wants_state or node.batched)
    return is_plain and not handling_of(node.on_error).interferes


def batches_in_parts(node: Node, parts_from: int) -> Node:
    """Set ``parts_from`` of the last batching, so that the consumer can assemble batches directly in its own memory."""
    if isinstance(node, Prefetch):
        return replace(node, input=batches_in_parts(node.input, parts_from))
    if parts_from == 0 and isinstance(node, (PaddedBatch, Bucket)):
        return replace(node, parts_from=0)
    return replace(node, parts_from=parts_from) if isinstance(node, Batch) else node


def _times(inner: int | None, outer: int | None) -> int | None:
    if inner == 0 or outer == 0:
        return 0
    return None if inner is None or outer is None else inner * outer
