"""Caches that are read by several nodes of a plan, or by several loaders."""

from __future__ import annotations

from collections import Counter

from aiostream_data._native import Charge
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Cache, CacheToken


class SharedCaches(frozenset[CacheToken]):
    """Caches read by several nodes of one loader's plan."""


class FilledElsewhere(dict[CacheToken, Charge]):
    """Memory charges of one loader for caches that other loaders have filled."""


def shared_caches(plan: Node) -> SharedCaches:
    """Return the caches that more than one node of a plan reads."""
    counts = Counter(node.token for node in {node for node in walk(plan) if isinstance(node, Cache)})
    return SharedCaches(token for token, count in counts.items() if count > 1)
