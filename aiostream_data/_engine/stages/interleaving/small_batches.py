"""Batches of small datasets in memory, such as ``window.batch(8)`` in a function of ``flat_map``.

A run of its own for each dataset would need tasks, channels and calls on worker threads for a few rows. So the batches
of a small dataset are built where they are needed. If they cannot be built, such a run raises the error in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeGuard

import numpy as np

from aiostream_data._engine.resume.origins import Namespace, local
from aiostream_data._engine.sources.memory_rows import chunks_of
from aiostream_data._engine.stages.interleaving.inner_sizes import dataset_nbytes
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Batch
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns, Items, gather
from aiostream_data.rows.row_ids import OTHER_PIPELINE, RowIds
from aiostream_data.transforms.batch_cuts import BatchCut
from aiostream_data.transforms.batching import Batcher, BatchOrder, Describe, as_items

MOST_NBYTES: Final = 8 << 10
"""Maximum size of a dataset whose batches are built in place. The batches of up to 2,048 datasets are built at once."""

NamespaceOf = Callable[[Node], Namespace]
"""Function that returns the namespace that all small datasets of the same kind share."""


def batched_rows(node: Batch, rows: int) -> int:
    """Return the number of batches of a dataset with ``rows`` rows, or -1 if they are not built in place.

    Args:
        rows: Number of rows of the input, or -1 if the input is not a small dataset.
    """
    if rows < 0 or isinstance(node.input, Batch):
        return -1
    nbytes = dataset_nbytes(node.input, rows)
    if nbytes is None or nbytes > MOST_NBYTES:
        return -1
    full, rest = divmod(rows, node.batch_size)
    return full + (rest > 0 and not node.drop_remainder)


def batches_of(node: Batch, namespace_of: NamespaceOf, describe: Describe) -> list[Chunk]:
    """Build all batches of a small dataset, as one chunk or none.

    Raises:
        BatchShapeError: The rows of a batch cannot be stacked.
    """
    order = BatchOrder(node.batch_size, node.drop_remainder)
    batcher = Batcher(order, describe, strings=node.strings or "objects")
    batches = [batch for rows in chunks_of(node.input, namespace_of(node.input)) for batch in batcher.push(rows)]
    made = as_items([*batches, *batcher.finish()])
    return [] if made is None else [made]


def can_be_cut(rows: Chunk | None) -> TypeGuard[Columns]:
    """Return True if batches of the joined rows of several datasets equal the batches of each dataset alone.

    Only plain columns can be cut. Arrays of several shapes cannot: those of one dataset may have equal shapes, and are
    then stacked.
    """
    if not isinstance(rows, Columns) or rows.made_of is not None or rows.structure.has_nullable:
        return False
    return not any(isinstance(leaf, VarColumn) or leaf.dtype.hasobject for leaf in rows.leaves)


def cut_into_batches(node: Batch, rows: Columns, counts: Sequence[int], describe: Describe) -> Items | None:
    """Return the batches of the joined rows of several datasets; None if there are none.

    Args:
        node: Stands for all datasets, whose batches differ only in their rows.
        counts: Number of rows of each dataset.
    """
    batcher = Batcher(_EachAlone(node, counts), describe, strings=node.strings or "objects")
    return as_items(batcher.push(rows, own=True))


class _EachAlone(BatchOrder):
    """Batch boundaries of several datasets whose rows are joined. A batch has rows of one dataset."""

    def __init__(self, node: Batch, counts: Sequence[int]) -> None:
        super().__init__(node.batch_size, node.drop_remainder)
        self._counts = counts

    def push(self, count: int) -> list[BatchCut]:
        cuts, first = [], 0
        for rows in self._counts:
            last = rows - rows % self.batch_size if self.drop_remainder else rows
            for start in range(0, last, self.batch_size):
                cuts.append(BatchCut(first + start, first + min(start + self.batch_size, last), completes=True))
            first += rows
        return cuts


def batches_if_sound(node: Batch, namespace_of: NamespaceOf, describe: Describe) -> list[Chunk] | None:
    """Return the batches of a small dataset; None if they cannot be built."""
    try:
        return batches_of(node, namespace_of, describe)
    except Exception:  # noqa: BLE001 - a run of its own raises it, behind the batches before
        return None


def batches_with_ids(batches: list[Chunk], ids: RowIds) -> Chunk:
    """Return the batches that have the given ids, in the order of the ids.

    Args:
        batches: Batches of one dataset, from :func:`batches_if_sound`.

    Raises:
        StateMismatchError: The dataset has no such batch.
    """
    known = {place: row for chunk in batches for row, place in enumerate(_places(chunk.ids))}
    rows = [known.get(place, -1) for place in _places(ids)]
    if -1 in rows:
        raise StateMismatchError(["the row ids name a batch that the function's dataset does not have"], OTHER_PIPELINE)
    return gather(batches, np.zeros(len(rows), np.int32), np.array(rows, np.int64))


def _places(ids: RowIds) -> list[tuple[int, int]]:
    splits, ordinals = local(ids)
    return list(zip(splits.tolist(), ordinals.tolist(), strict=True))
