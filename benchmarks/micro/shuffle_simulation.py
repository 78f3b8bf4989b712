"""The order that shards and a shuffle buffer give rows in, without reading anything: for measuring shuffles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.transforms.interleave import InterleaveOrder, Need
from aiostream_data.transforms.shuffle_buffer import ShuffleOrder

ROWS_AT_ONCE = 1 << 20

Numbers = NDArray[np.int64]
"""(shard, ordinal) of rows: int64 (rows, 2)."""


def interleaved_ids(rows_of_shards: Sequence[int], turns: Iterable[int], cycle_length: int) -> Numbers:
    """Return (shard, ordinal) of all rows, int64 (rows, 2), as reading ``cycle_length`` shards at once gives them.

    Args:
        rows_of_shards: Rows of every shard.
        turns: The shards, in the order in which they are opened.
    """
    order = InterleaveOrder(cycle_length)
    upcoming = iter(turns)
    shard_in = np.zeros(cycle_length, np.int64)
    is_read = [False] * cycle_length
    parts: list[Numbers] = [np.empty((0, 2), np.int64)]
    while True:
        step = order.advance(ROWS_AT_ONCE)
        parts.append(np.stack([shard_in[step.which], step.rows], axis=1))
        slot = step.waiting.slot
        match step.waiting.need:
            case Need.FINISHED:
                return np.concatenate(parts)
            case Need.STREAM:
                shard = next(upcoming, None)
                if shard is None:
                    order.no_more_streams()
                else:
                    order.opened(slot)
                    shard_in[slot], is_read[slot] = shard, False
            case Need.ROWS if is_read[slot]:
                order.ended(slot)
            case Need.ROWS:
                order.load(slot, rows_of_shards[int(shard_in[slot])])
                is_read[slot] = True


def sequential_ids(rows_of_shards: Sequence[int]) -> Numbers:
    """Return (shard, ordinal) of all rows, shard after shard."""
    shards = [np.stack([np.full(rows, shard), np.arange(rows)], axis=1) for shard, rows in enumerate(rows_of_shards)]
    return np.concatenate(shards)


def shuffled_ids(ids: Numbers, order: ShuffleOrder) -> Numbers:
    """Return ``ids`` in the order in which a shuffle buffer gives them, from its first row to its last."""
    fills, slots = order.push(len(ids))
    held = ids[fills]
    given = _native.exchange_rows(held, slots, np.delete(ids, fills, axis=0))
    return np.concatenate([given, held[order.drain(len(held))]])
