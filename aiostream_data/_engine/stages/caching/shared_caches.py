"""Caches that several places read: of one plan, or of several loaders."""

from __future__ import annotations

from collections import Counter

from aiostream_data._engine.memory.budget import Charge
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Cache, CacheToken


class SharedCaches(frozenset[CacheToken]):
    """Caches that several places of the plan read; one set per loader."""


class FilledElsewhere(dict[CacheToken, Charge]):
    """Bytes of caches that another loader has filled; one table per loader."""


def shared_caches(plan: Node) -> SharedCaches:
    """Return the caches that several nodes of a plan read."""
    counts = Counter(node.token for node in {node for node in walk(plan) if isinstance(node, Cache)})
    return SharedCaches(token for token, count in counts.items() if count > 1)
