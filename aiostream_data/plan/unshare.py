"""Give every place in a plan a node of its own, so that a node names one place."""

from __future__ import annotations

from dataclasses import replace

from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Cache, CacheToken
from aiostream_data.plan.rewrite import with_inputs
from aiostream_data.plan.sources import PythonIterable


def unshared(node: Node) -> Node:
    """Return the same plan with copies of nodes that are read in several places, as in ``zip(ds, ds)``.

    An iterable that can be read only once stays one node, since reading it in two places is an error. And so does
    what a cache reads: whoever fills it, the rows are the same.
    """
    seen: set[Node] = set()
    cached: dict[CacheToken, Node] = {}

    def input_of(node: Cache) -> Node:
        if node.token not in cached:
            cached[node.token] = visit(node.input)
        return cached[node.token]

    def visit(node: Node) -> Node:
        if isinstance(node, PythonIterable) and node.one_shot:
            return node
        node = replace(node, input=input_of(node)) if isinstance(node, Cache) else with_inputs(node, visit)
        node = replace(node) if node in seen else node
        seen.add(node)
        return node

    return visit(node)
