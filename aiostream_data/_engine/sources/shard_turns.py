"""Reading order of the shards of one era (shards that were listed together), and the shards not yet read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.resume.shard_numbers import Era
from aiostream_data.plan.ranks import of_this_rank, share_of
from aiostream_data.plan.shard_list import MAX_MARKED
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import sizes_of
from aiostream_data.state_fields import Part
from aiostream_data.transforms.packed_ids import Packed, pack, unpack
from aiostream_data.transforms.randomness import permutation
from aiostream_data.transforms.shard_order import even_cycle, shard_order

LEFT: Final = "left"
"""Key of the unopened shards in the saved state, used if removing a shard would change the shard order."""


def names_order(context: RunContext, node: ListFiles, era: Era) -> Sequence[int]:
    """Return the shard numbers of an era, including removed shards, in the order of the emitted URLs.

    Raises:
        RankError: The source has fewer shards than ranks.
    """
    seed, permuted = node.seed, node.permuted
    order: Sequence[int] = range(era.first, era.first + era.count)
    if seed is not None or permuted is not None:
        epoch = context.epoch if permuted is None or permuted.reshuffle else 0
        key = context.key(node, seed if permuted is None else permuted.seed, "files", epoch, *era.names)
        order = _numbers(era.first + permutation(key, era.count))
    return of_this_rank(order, node.share) if era.number == 0 else share_of(order, node.share)


def order_of(context: RunContext, node: ReadFiles, shards: Sequence[ShardRef | None], era: Era) -> Sequence[int]:
    """Return the shard numbers of an era, including removed shards, in this rank's reading order.

    Args:
        shards: Shards by number. The shard sizes influence the order only if ``node.spread`` is set.

    Raises:
        RankError: The source has fewer shards than ranks.
    """
    numbers: Sequence[int] = range(era.first, era.first + era.count)
    if node.shuffle_shards:
        key = context.key(node, node.seed, "shards", context.epoch if node.reshuffle else 0, *era.names)
        if node.spread:
            at_once = node.cycle_length * (node.share[1] if node.share else 1)
            order = np.array(shard_order(key, sizes_of(shards[era.first : era.first + era.count]), at_once), np.int64)
        else:
            order = permutation(key, era.count)
        numbers = _numbers(era.first + order)
    return share_of(numbers, node.share) if era.number else of_this_rank(numbers, node.share)


def _numbers(order: NDArray[np.int64]) -> Sequence[int]:
    """Return shard numbers with 8 bytes per number."""
    return array("q", order.astype(np.int64).tobytes())


def cycle_of(node: ReadFiles, turns: int) -> int:
    """Return the number of an era's shards that the source interleaves at the same time."""
    return even_cycle(turns, node.cycle_length) if node.spread else max(1, min(node.cycle_length, turns))


def turns_left(turns: Sequence[int], state: dict[str, Any] | None) -> tuple[int, Sequence[int]]:
    """Return the number of shards that the saved run had opened in its era, and the shards not yet opened."""
    if state is None:
        return 0, turns
    first: int = state["next"]
    if LEFT in state:
        return first, unpack(state[LEFT], columns=1, max_values=MAX_MARKED)[:, 0].tolist()
    return first, turns[first:]


def needs_turns_left(node: ReadFiles, era: Era) -> bool:
    """Return True if the saved position of a source lists the shards not yet opened.

    With ``node.spread``, the shard order depends on the sizes of all shards. If a shard is removed, this order cannot
    be recomputed. For a list of more than ``MAX_MARKED`` shards, the only accepted change is appending new shards.
    """
    return node.spread and era.count <= MAX_MARKED


def packed_turns(left: list[int]) -> Packed:
    """Pack the numbers of shards not yet opened into JSON-compatible data."""
    return pack(np.array(left, np.int64)[:, None])


def check_left(part: Part, era: Era | None) -> None:
    """Validate the list of shards not yet opened in a saved position.

    Raises:
        DamagedStateError: The saved value is not a list of distinct shards of the era.
    """
    try:
        left = unpack(part.value, columns=1, max_values=MAX_MARKED)[:, 0].tolist()
    except ValueError as error:
        raise part.refused(f"must be numbers of shards ({error})") from None
    first, stop = (0, MAX_MARKED) if era is None else (era.first, era.first + era.count)
    if len(set(left)) < len(left) or not all(first <= number < stop for number in left):
        raise part.refused(f"must be different shard numbers from {first} to {stop - 1}")
