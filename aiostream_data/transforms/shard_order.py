"""Which shards are read one after another, and how many at once, so that the end of an epoch is as mixed as the rest.

How this works. Rows of ``cycle_length`` open shards are interleaved; a shard that ends makes room for the
next one. When none is left to follow, fewer and fewer stay open, and the last rows of an epoch would come
from one shard. So the order is random, but the last shards come largest first, which makes them end
together; and the number of open shards is lowered a little where that lets the last round be a full one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from aiostream_data.transforms.randomness import permutation

LAST_ROUNDS: Final = 4
"""Rounds of open shards at the end in which the larger ones come first."""

LEAST_SHARE: Final = 0.75
"""How much of the cycle is kept at least when the last round is evened out."""


def shard_order(key: np.uint64, sizes: Sequence[int | None], cycle_length: int) -> list[int]:
    """Return a random order of shards, for reading ``cycle_length`` of them at once, that ends evenly.

    Args:
        key: From :func:`~aiostream_data.transforms.randomness.key_of`; one per seed and epoch.
        sizes: In bytes, by shard; where one is not known the order is simply random.
    """
    order = permutation(key, len(sizes))
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        start = max(0, len(order) - LAST_ROUNDS * cycle_length)
        by_size = np.argsort(-np.array(known, np.int64)[order[start:]], kind="stable")
        order[start:] = order[start:][by_size]
    chosen: list[int] = order.tolist()
    return chosen


def even_cycle(shards: int, cycle_length: int) -> int:
    """Return how many of ``shards`` to read at once: at most ``cycle_length``, such that the last round is fullest."""
    if shards <= cycle_length:
        return max(1, shards)
    least = max(1, round(cycle_length * LEAST_SHARE))

    def fullness(cycle: int) -> tuple[float, int]:
        return ((shards - 1) % cycle + 1) / cycle, cycle

    return max(range(least, cycle_length + 1), key=fullness)
