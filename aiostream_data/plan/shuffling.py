"""Choose how ``shuffle()`` without a buffer size shuffles: by what it stands on.

Where every row can be had by its number, the source gives its rows in a random order and there is no
buffer at all. Over files, many of them are read at once, in random order, and the buffer mixes what
comes. Only operators that treat every row by itself may stand between: any other would see other rows,
or number them differently.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aiostream_data.plan.base import Node, Operator
from aiostream_data.plan.operators import Filter, Map, ParseExample, ParseRows, Prefetch, Shuffle
from aiostream_data.plan.sources import ListFiles, Permuted, Range, ReadFiles, TensorSlices
from aiostream_data.plan.subprocess import InSubprocess

SPREAD_CYCLE: Final = 32
"""Files that are read at once below ``shuffle()``."""

EACH_ROW_BY_ITSELF: Final = (Map, ParseExample, ParseRows, Prefetch, Filter, InSubprocess)


def chosen_shuffle(node: Shuffle) -> Node:
    """Return what runs for a shuffle: itself, unless it has to choose its buffer."""
    if not node.growing:
        return node
    source = _source_below(node.input)
    permuted = _permuted(source, node)
    if permuted is not None:
        return _on(permuted, node.input)
    return replace(node, input=_on(_spread(source, node), node.input)) if isinstance(source, ReadFiles) else node


def _source_below(node: Node) -> Node:
    while isinstance(node, Operator) and isinstance(node, EACH_ROW_BY_ITSELF):
        node = node.input
    return node


def _on(source: Node, node: Node) -> Node:
    """Return the operators of ``node`` over another source."""
    if isinstance(node, Operator) and isinstance(node, EACH_ROW_BY_ITSELF):
        return replace(node, input=_on(source, node.input))
    return source


def _permuted(source: Node, shuffle: Shuffle) -> Node | None:
    """Return the source in a random order of all its rows, or None where it cannot give that."""
    order = Permuted(seed=shuffle.seed, reshuffle=shuffle.reshuffle_each_iteration)
    if isinstance(source, (TensorSlices, Range)) and source.permuted is None:
        return replace(source, permuted=order)
    if isinstance(source, ListFiles) and source.permuted is None and source.seed is None:
        return replace(source, permuted=order)
    if isinstance(source, ReadFiles) and source.format.whole and not source.shuffle_shards:
        return replace(source, shuffle_shards=True, seed=order.seed, reshuffle=order.reshuffle)
    return None


def _spread(source: ReadFiles, shuffle: Shuffle) -> ReadFiles:
    wide = replace(source, cycle_length=max(source.cycle_length, SPREAD_CYCLE), spread=True)
    if source.shuffle_shards:
        return wide
    seed = shuffle.seed if source.seed is None else source.seed
    return replace(wide, shuffle_shards=True, seed=seed, reshuffle=shuffle.reshuffle_each_iteration)
