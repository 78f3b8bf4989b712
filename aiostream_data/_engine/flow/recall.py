"""Recall: recompute single rows from their ids, by reading their source rows again and applying the operators.

How this works. The ids of a row name the source row that the row was made from. Operators such as enumerate() and
flat_map() add another id to the row: a number, or the id of the outer row. Every node can therefore recompute its
output rows from rows of its inputs. Most nodes recall the input rows and then process them as usual. When a run
resumes, it recalls the rows that operators buffered when the state was saved. ``fetch`` recalls rows that the user
selects by their origin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from aiostream_data._engine.resume.epochs import epoch_of, sources_of
from aiostream_data._engine.resume.origins import Namespace, Origins
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import Node
from aiostream_data.rows.id_arrays import SPLIT_BITS, SPLIT_MASK
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, concat, gather
from aiostream_data.rows.row_ids import CACHED, OTHER_PIPELINE, RowIds

if TYPE_CHECKING:
    from aiostream_data._engine.flow.context import RunContext

K = TypeVar("K", bound=Hashable)


def outermost(lineage: Lineage, origins: Origins) -> list[Namespace]:
    """For each row, return the namespace (run of a source) in the plan itself, ignoring inner data sets."""
    last = np.zeros(len(lineage), np.int64)
    for pair in lineage.ids.pairs():
        last = np.where(pair.namespaces > 0, pair.namespaces, last)
    found = {number: origins.namespace(number) for number in np.unique(last).tolist()}
    return [found[number] for number in last.tolist()]


def names_of(ids: RowIds, origins: Origins) -> list[tuple[int, ...]]:
    """Return a name for each row.

    The name of a row is the same in every run, even if the row was read from a saved state.
    """
    return [tuple(_name(numbers, origins)) for numbers in ids.tolist()]


def _name(numbers: Sequence[int], origins: Origins) -> Iterator[int]:
    for split, ordinal in zip(numbers[::2], numbers[1::2], strict=True):
        if split >> SPLIT_BITS:
            space = origins.namespace(split >> SPLIT_BITS)
            yield from (space.number, space.epoch, split & SPLIT_MASK, ordinal)
        else:
            yield from (split, ordinal)


def read_at(lineage: Lineage, origins: Origins) -> list[int]:
    """For each row, return the number of the plan's source or shared cache that the row came from."""
    numbers = [space.number for space in outermost(lineage, origins)]
    for pair in lineage.ids.pairs():
        for row in np.flatnonzero(pair.splits == CACHED).tolist():
            numbers[row] = int(pair.ordinals[row])  # the last pair wins: it belongs to the outermost cache
    return numbers


def inputs_of(lineage: Lineage, nodes: Sequence[Node], context: RunContext) -> list[int]:
    """For each row, return the number of the operator's input from which the row came.

    Raises:
        StateMismatchError: A row came from a source that none of the inputs reads.
    """
    sources = [sources_of(node, context.keys) for node in nodes]
    inputs: dict[int, int] = {}
    for number, known in reversed(list(enumerate(sources))):
        inputs.update(dict.fromkeys(known, number))
    read = read_at(lineage, context.services.origins)
    foreign = set(read) - inputs.keys()
    if foreign:
        raise StateMismatchError(
            [f"the state has rows of source {min(foreign)}, which none of these inputs reads"],
            "Open the pipeline that the state was saved from.",
        )
    return [inputs[number] for number in read]


async def in_epochs(lineage: Lineage, node: Node, context: RunContext) -> Chunk:
    """Recompute rows of a node, each row in the epoch in which the node emitted it.

    Raises:
        StateMismatchError: A row came from a source that ``node`` does not read.
    """
    spaces = outermost(lineage, context.services.origins)
    epochs = [epoch_of(node, context.keys, space.number, space.epoch) for space in spaces]

    async def of_epoch(epoch: int, rows: Lineage) -> Chunk:
        return await context.for_epoch(epoch).recall(node, rows)

    return await in_groups(lineage, epochs, of_epoch)


async def in_groups(lineage: Lineage, keys: Sequence[K], recall: Callable[[K, Lineage], Awaitable[Chunk]]) -> Chunk:
    """Recompute rows with one call for each distinct key. Return all rows in the order of ``lineage``."""
    groups: dict[K, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    if len(groups) == 1:
        return await recall(keys[0], lineage)
    parts = [await recall(key, lineage.take(np.array(rows, np.int64))) for key, rows in groups.items()]
    return in_order(concat(parts), [row for rows in groups.values() for row in rows])


def in_order(chunk: Chunk, numbers: Sequence[int]) -> Chunk:
    """Return the rows of a chunk, sorted by ``numbers``."""
    order = np.argsort(np.array(numbers, np.int64), kind="stable")
    return gather([chunk], np.zeros(len(chunk), np.int32), order)


async def recalled_by_a_run(node: Node, lineage: Lineage, context: RunContext) -> Chunk:
    """Recompute rows of ``node`` by a run of the node from the beginning of its input.

    Raises:
        StateMismatchError: The node does not emit all of the rows.
    """
    origins = context.services.origins
    wanted = names_of(lineage.ids, origins)
    missing = set(wanted)
    found: dict[tuple[int, ...], Chunk] = {}
    async with context.open(node) as receiver:
        async for chunk in receiver:
            for row, name in enumerate(names_of(chunk.ids, origins)):
                if name in missing:
                    missing.remove(name)
                    found[name] = chunk.slice(row, row + 1)
            if not missing:
                break
    if missing:
        raise StateMismatchError([f"{node.label}() does not emit {len(missing)} of the rows"], OTHER_PIPELINE)
    return concat([found[name] for name in wanted])
