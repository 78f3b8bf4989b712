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
    return _Copier().visit(node)


class _Copier:
    """Copies nodes that were visited before. Nested functions that call each other would keep the nodes in a cycle."""

    def __init__(self) -> None:
        self._seen: set[Node] = set()
        self._cached: dict[CacheToken, Node] = {}

    def visit(self, node: Node) -> Node:
        if isinstance(node, PythonIterable) and node.one_shot:
            return node
        node = replace(node, input=self._input_of(node)) if isinstance(node, Cache) else with_inputs(node, self.visit)
        node = replace(node) if node in self._seen else node
        self._seen.add(node)
        return node

    def _input_of(self, node: Cache) -> Node:
        if node.token not in self._cached:
            self._cached[node.token] = self.visit(node.input)
        return self._cached[node.token]
