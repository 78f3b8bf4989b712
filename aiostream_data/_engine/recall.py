"""Make single rows again, from what their ids say: read them at their source and take them through the operators.

How this works. A row's ids name the row of the source, and what operators on the way added (the number that
enumerate() gave, the outer row of flat_map()). So every node can make a row again from rows of its inputs:
most pass the request on and do to the rows what they always do. Rows that were held back when a state was
taken come back this way, and so does a row that the user asks for by its origin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from aiostream_data._engine.origins import SPLIT_BITS, Namespace, Origins
from aiostream_data.lineage import CACHED, Lineage, last_pairs
from aiostream_data.records import Chunk, concat, gather

K = TypeVar("K", bound=Hashable)


def outermost(lineage: Lineage, origins: Origins) -> list[Namespace]:
    """Return, for every row, the namespace of the source that the plan itself reads, not that of an inner data set."""
    ids = lineage.ids
    pairs = last_pairs(ids)
    rows = np.arange(len(ids))
    while True:
        numbers = ids[rows, 2 * pairs] >> SPLIT_BITS
        marks = (numbers == 0) & (pairs > 0)
        if not marks.any():
            break
        pairs = pairs - marks
    found = {number: origins.namespace(number) for number in np.unique(numbers).tolist()}
    return [found[number] for number in numbers.tolist()]


def read_at(lineage: Lineage, origins: Origins) -> list[int]:
    """Return, for every row, the number of the source that the plan itself reads, or of the shared cache."""
    numbers = [space.number for space in outermost(lineage, origins)]
    ids = lineage.ids
    for column in range(2, ids.shape[1], 2):
        for row in np.flatnonzero(ids[:, column] == CACHED).tolist():
            numbers[row] = int(ids[row, column + 1])  # the last one counts: what is farther right is farther out
    return numbers


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
