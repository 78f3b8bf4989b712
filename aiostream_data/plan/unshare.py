"""Give every place in a plan a node of its own, so that a node names one place."""

from __future__ import annotations

from dataclasses import replace

from aiostream_data.plan.base import Node
from aiostream_data.plan.rewrite import with_inputs
from aiostream_data.plan.sources import PythonIterable


def unshared(node: Node) -> Node:
    """Return the same plan with copies of nodes that are read in several places, as in ``zip(ds, ds)``.

    An iterable that can be read only once stays one node, since reading it in two places is an error.
    """
    seen: set[Node] = set()

    def visit(node: Node) -> Node:
        if isinstance(node, PythonIterable) and node.one_shot:
            return node
        node = with_inputs(node, visit)
        node = replace(node) if node in seen else node
        seen.add(node)
        return node

    return visit(node)
