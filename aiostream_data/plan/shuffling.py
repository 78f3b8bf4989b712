"""Choose how to run ``shuffle()`` without a buffer size, or with a buffer for all rows, depending on the source.

A source with random access emits its rows in a random order, without a buffer. A file source reads many files
concurrently in random order, and a buffer mixes their rows. Files with row groups are read in random order, but not
more of them concurrently: a row group can take a large part of the memory limit. All methods require that all operators
between the source and ``shuffle()`` process each row independently.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aiostream_data.plan.base import Node, Operator
from aiostream_data.plan.columns import ColumnOperator
from aiostream_data.plan.keyed import WindowSlices
from aiostream_data.plan.operators import Filter, Interleave, Map, ParseExample, ParseRows, Prefetch, Shuffle
from aiostream_data.plan.sources import ListFiles, Permuted, Range, ReadFiles, TensorSlices
from aiostream_data.plan.subprocess import InSubprocess
from aiostream_data.plan.tables import reads_files

SPREAD_CYCLE: Final = 32
"""Minimum number of files that are read concurrently for ``shuffle()`` without a buffer size."""

EACH_ROW_BY_ITSELF: Final = (Map, ParseExample, ParseRows, Prefetch, Filter, InSubprocess, ColumnOperator)


def chosen_shuffle(node: Shuffle) -> Node:
    """Return the node that replaces a shuffle. It is the shuffle itself if its buffer is smaller than the data."""
    if not node.growing:
        return _without_buffer(node) or node
    source = _source_below(node.input)
    permuted = _permuted(source, node)
    if permuted is not None:
        return _on(permuted, node.input)
    mixed = _mixed(source, node)
    return node if mixed is None else replace(node, input=_on(mixed, node.input))


def _without_buffer(node: Shuffle) -> Node | None:
    """Return the rows of an in-memory source in random order, if the buffer of a shuffle has room for all of them.

    A permutation would change the order in which user functions are called. So only nodes that do not affect rows may
    be between the source and the shuffle.
    """
    source = node.input
    while isinstance(source, (Prefetch, InSubprocess)):
        source = source.input
    is_whole = isinstance(source, (TensorSlices, Range)) and source.times == 1 and source.rows <= node.buffer_rows
    permuted = _permuted(source, node) if is_whole else None
    return None if permuted is None else _on(permuted, node.input)


def _source_below(node: Node) -> Node:
    while isinstance(node, Operator) and isinstance(node, EACH_ROW_BY_ITSELF):
        node = node.input
    return node


def _on(source: Node, node: Node) -> Node:
    """Return a copy of the plan that ends with ``node``, with a different source."""
    if isinstance(node, Operator) and isinstance(node, EACH_ROW_BY_ITSELF):
        return replace(node, input=_on(source, node.input))
    return source


def _permuted(source: Node, shuffle: Shuffle) -> Node | None:
    order = Permuted(seed=shuffle.seed, reshuffle=shuffle.reshuffle_each_iteration)
    if isinstance(source, WindowSlices):
        return None
    if isinstance(source, (TensorSlices, Range)) and source.permuted is None:
        return replace(source, permuted=order)
    if isinstance(source, ListFiles) and source.permuted is None and source.seed is None:
        return replace(source, permuted=order)
    if isinstance(source, ReadFiles) and source.format.whole and not source.shuffle_shards:
        return replace(source, shuffle_shards=True, seed=order.seed, reshuffle=order.reshuffle)
    return None


def _mixed(source: Node, shuffle: Shuffle) -> Node | None:
    """Return a source whose files are read in random order; None for a source of another kind."""
    if isinstance(source, ReadFiles):
        return _spread(source, shuffle)
    if isinstance(source, Interleave) and reads_files(source.function):
        files = _permuted(source.input, shuffle)
        return None if files is None else replace(source, input=files)
    return None


def _spread(source: ReadFiles, shuffle: Shuffle) -> ReadFiles:
    wide = replace(source, cycle_length=max(source.cycle_length, SPREAD_CYCLE), spread=True)
    if source.shuffle_shards:
        return wide
    seed = shuffle.seed if source.seed is None else source.seed
    return replace(wide, shuffle_shards=True, seed=seed, reshuffle=shuffle.reshuffle_each_iteration)
