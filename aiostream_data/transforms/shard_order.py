"""Choose the order of shards and the number of open shards, so that rows at the end of an epoch are well mixed.

How this works. Rows of ``cycle_length`` open shards are interleaved, and a new shard replaces each finished shard. Near
the end, no new shards replace finished shards, so the last rows of an epoch could come from one shard. Two measures
avoid this. The shard order is random, but the last shards are sorted largest first, so that these shards end together.
The number of open shards is slightly reduced if the reduction makes the last round of shards full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from aiostream_data.transforms.randomness import permutation

LAST_ROUNDS: Final = 4
"""Number of last rounds in an epoch whose shards are sorted largest first. One round is ``cycle_length`` shards."""

LEAST_SHARE: Final = 0.75
"""Minimum fraction of ``cycle_length`` that stays in use when the number of open shards is reduced."""


def shard_order(key: np.uint64, sizes: Sequence[int | None], cycle_length: int) -> list[int]:
    """Return a random order of shards in which the last shards are sorted by size, largest first.

    Args:
        key: Random key from :func:`~aiostream_data.transforms.randomness.key_of`, different for each seed and epoch.
        sizes: Size of each shard in bytes. If the size of any shard is None, the order is uniformly random.
        cycle_length: Number of shards read at the same time.
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
    """Return how many shards to read at a time, at most ``cycle_length``, for the fullest possible last round."""
    if shards <= cycle_length:
        return max(1, shards)
    least = max(1, round(cycle_length * LEAST_SHARE))

    def fullness(cycle: int) -> tuple[float, int]:
        return ((shards - 1) % cycle + 1) / cycle, cycle

    return max(range(least, cycle_length + 1), key=fullness)
