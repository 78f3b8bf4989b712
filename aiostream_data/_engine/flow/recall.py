"""Make single rows again, from what their ids say: read them at their source and take them through the operators.

How this works. A row's ids name the row of the source, and what operators on the way added (the number that
enumerate() gave, the outer row of flat_map()). So every node can make a row again from rows of its inputs:
most pass the request on and do to the rows what they always do. Rows that were held back when a state was
taken come back this way, and so does a row that the user asks for by its origin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from aiostream_data._engine.resume.epochs import epoch_of, sources_of
from aiostream_data._engine.resume.origins import Namespace, Origins
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import Node
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, concat, gather
from aiostream_data.rows.row_ids import CACHED, SPLIT_BITS, SPLIT_MASK, RowIds

if TYPE_CHECKING:
    from aiostream_data._engine.flow.context import RunContext

K = TypeVar("K", bound=Hashable)


def outermost(lineage: Lineage, origins: Origins) -> list[Namespace]:
    """Return, for every row, the namespace of the source that the plan itself reads, not that of an inner data set."""
    last = np.zeros(len(lineage), np.int64)
    for pair in lineage.ids.pairs():
        last = np.where(pair.namespaces > 0, pair.namespaces, last)
    found = {number: origins.namespace(number) for number in np.unique(last).tolist()}
    return [found[number] for number in last.tolist()]


def names_of(ids: RowIds, origins: Origins) -> list[tuple[int, ...]]:
    """Return a name of each row that is the same in every run, and for rows that a state names."""
    return [tuple(_name(numbers, origins)) for numbers in ids.tolist()]


def _name(numbers: Sequence[int], origins: Origins) -> Iterator[int]:
    for split, ordinal in zip(numbers[::2], numbers[1::2], strict=True):
        if split >> SPLIT_BITS:
            space = origins.namespace(split >> SPLIT_BITS)
            yield from (space.number, space.epoch, split & SPLIT_MASK, ordinal)
        else:
            yield from (split, ordinal)


def read_at(lineage: Lineage, origins: Origins) -> list[int]:
    """Return, for every row, the number of the source that the plan itself reads, or of the shared cache."""
    numbers = [space.number for space in outermost(lineage, origins)]
    for pair in lineage.ids.pairs():
        for row in np.flatnonzero(pair.splits == CACHED).tolist():
            numbers[row] = int(pair.ordinals[row])  # the last one counts: what is farther right is farther out
    return numbers


def inputs_of(lineage: Lineage, nodes: Sequence[Node], context: RunContext) -> list[int]:
    """Return for every row which of an operator's inputs it came from.

    Raises:
        StateMismatchError: A row came from none of them.
    """
    sources = [sources_of(node, context.keys) for node in nodes]
    inputs: dict[int, int] = {}
    for number, known in reversed(list(enumerate(sources))):
        inputs.update(dict.fromkeys(known, number))
    read = read_at(lineage, context.services.origins)
    foreign = set(read) - inputs.keys()
    if foreign:
        raise StateMismatchError([f"the state has rows of source {min(foreign)}, which none of these inputs reads"])
    return [inputs[number] for number in read]


async def in_epochs(lineage: Lineage, node: Node, context: RunContext) -> Chunk:
    """Recall rows of a node, each in the epoch of the node that gave it.

    Raises:
        StateMismatchError: A row came from a source that the node does not read.
    """
    spaces = outermost(lineage, context.services.origins)
    epochs = [epoch_of(node, context.keys, space.number, space.epoch) for space in spaces]

    async def of_epoch(epoch: int, rows: Lineage) -> Chunk:
        return await context.for_epoch(epoch).recall(node, rows)

    return await in_groups(lineage, epochs, of_epoch)


async def in_groups(lineage: Lineage, keys: Sequence[K], recall: Callable[[K, Lineage], Awaitable[Chunk]]) -> Chunk:
    """Recall the rows of every key with one call, and return all rows in the order asked for."""
    groups: dict[K, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    if len(groups) == 1:
        return await recall(keys[0], lineage)
    parts = [await recall(key, lineage.take(np.array(rows, np.int64))) for key, rows in groups.items()]
    return in_order(concat(parts), [row for rows in groups.values() for row in rows])


def in_order(chunk: Chunk, numbers: Sequence[int]) -> Chunk:
    """Return the rows sorted by the numbers given for them."""
    order = np.argsort(np.array(numbers, np.int64), kind="stable")
    return gather([chunk], np.zeros(len(chunk), np.int32), order)
