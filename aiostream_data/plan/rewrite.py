"""Plans that mean the same and run faster. Each rewrite keeps elements, order and errors.

The order of a shuffle that chooses its own buffer is that of the plan it is rewritten to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from aiostream_data.failing.policies import OnError, handling_of, policy_for_sources
from aiostream_data.plan.base import Node
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
from aiostream_data.plan.sources import ReadFiles, Tensors, TensorSlices
from aiostream_data.plan.subprocess import InSubprocess, LoaderShard
from aiostream_data.plan.windows import Bucket, PaddedBatch


def rewrite(node: Node) -> Node:
    """Return an equivalent plan, rewritten from the sources up. What was one node in two places stays one."""
    done: dict[Node, Node] = {}

    def visit(node: Node) -> Node:
        if node not in done:
            done[node] = _rewrite_one(with_inputs(node, visit))
        return done[node]

    return visit(node)


def unordered(node: Node) -> Node:
    """Return the plan with every stage free to give results as they come: same elements, any order.

    What ranks or several worker processes share keeps its order, which decides who gets what.
    """
    if isinstance(node, (RankShard, LoaderShard)) or (isinstance(node, InSubprocess) and node.workers > 1):
        return node
    node = with_inputs(node, unordered)
    return replace(node, ordered=False) if isinstance(node, (Map, Interleave, ReadFiles)) else node


def with_policy(node: Node, policy: OnError) -> Node:
    """Return the plan with a policy for every stage that was given none."""
    node = with_inputs(node, lambda child: with_policy(child, policy))
    if isinstance(node, (Call, Interleave, ParseExample)) and node.on_error is None:
        return replace(node, on_error=policy)
    if isinstance(node, ReadFiles) and node.on_error is None:
        return replace(node, on_error=policy_for_sources(policy))
    return node


def with_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the node with every node that it reads changed; the node itself where none was."""
    changed: dict[str, Any] = {}
    new: Any
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, Node):
            new = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            new = tuple(change(child) for child in value)
        else:
            continue
        if new is not value and new != value:
            changed[part.name] = new
    return replace(node, **changed) if changed else node


def _rewrite_one(node: Node) -> Node:
    if isinstance(node, ParseExample) and isinstance(node.input, ReadFiles) and _may_be_fused(node, node.input):
        # Parsing is row-wise, so it commutes with interleaving files and shares the reader's hop.
        return replace(node.input, decoders=(node.decoder,))
    if isinstance(node, ParseExample) and handling_of(node.on_error).interferes:
        return ParseRows(input=node.input, decoder=node.decoder, name=node.name, on_error=node.on_error)
    if isinstance(node, Repeat):
        return _with_times(node.input, node.count) or node
    if isinstance(node, Shuffle):
        return chosen_shuffle(node)
    if isinstance(node, Prefetch) and isinstance(node.input, Prefetch):
        return replace(node, input=node.input.input)
    if isinstance(node, ToDevice):
        # The slot is where the batch is put together: its rows are copied once.
        return replace(node, input=batches_in_parts(node.input, 0))
    return node


def _may_be_fused(node: ParseExample, source: ReadFiles) -> bool:
    # What is left out or replaced has to be counted behind the source, which knows its own rows only.
    return not source.decoders and not handling_of(node.on_error).interferes


def _with_times(node: Node, count: int | None) -> Node | None:
    """Return ``node`` with the repetitions folded into its source, or None if the source is not in memory.

    Data in memory need no new run per epoch. Nodes that decide nothing about rows are passed, since a plan has the
    same states and random keys with and without them.
    """
    if isinstance(node, (Tensors, TensorSlices)):
        return replace(node, times=_times(node.times, count))
    if isinstance(node, (Prefetch, InSubprocess)):
        source = _with_times(node.input, count)
        return None if source is None else replace(node, input=source)
    return None


def batches_in_parts(node: Node, parts_from: int) -> Node:
    """Leave the batches of a plan in parts, for a consumer that joins them in its own memory."""
    if isinstance(node, Prefetch):
        return replace(node, input=batches_in_parts(node.input, parts_from))
    if parts_from == 0 and isinstance(node, (PaddedBatch, Bucket)):
        return replace(node, parts_from=0)
    return replace(node, parts_from=parts_from) if isinstance(node, Batch) else node


def _times(inner: int | None, outer: int | None) -> int | None:
    if inner == 0 or outer == 0:
        return 0
    return None if inner is None or outer is None else inner * outer
