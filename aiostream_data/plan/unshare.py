"""Copy plan nodes that are used in several places, so that each node is used in only one place."""

from __future__ import annotations

from dataclasses import replace

from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Cache, CacheToken
from aiostream_data.plan.rewrite import with_inputs
from aiostream_data.plan.sources import PythonIterable


def unshared(node: Node) -> Node:
    """Return the plan with separate copies of nodes that several nodes read, as in ``zip(ds, ds)``.

    One-shot iterables are not copied, because reading such an iterable twice is an error. The input of a cache is not
    copied either, because all readers fill the cache with the same rows.
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
