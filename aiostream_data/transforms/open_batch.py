"""Large batches that are filled chunk by chunk, so that each row is copied once."""

from __future__ import annotations

import math
from itertools import repeat
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.columns import Column, VarColumn, column_nbytes, concat_column, owned_column
from aiostream_data.rows.lent_memory import LARGE_ARRAY_NBYTES, LendsMemory, Shape, empty_arrays
from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.records import Chunk, Columns, layout_of
from aiostream_data.rows.row_ids import RowIds

MOST_NBYTES: Final = 1 << 30
"""Maximum memory in bytes that is allocated before the rows of a batch arrive, of which there may be few."""


class OpenBatch:
    """The first rows of a batch, in memory for the complete batch. Not thread-safe.

    Dense leaves are copied to their place in the batch. Rows of other leaves are joined when the batch is complete.

    Args:
        example: Rows with the layout of the batch. They are not added.
        rows: Maximum number of rows of the batch.
        pool: Pool of memory for large leaves.
    """

    def __init__(self, example: Columns, rows: int, pool: LendsMemory | None) -> None:
        self._structure, self._layout = example.structure, layout_of(example)
        dense = [leaf for leaf in example.leaves if _is_dense(leaf)]
        made = iter(empty_arrays([Shape((rows, *leaf.shape[1:]), leaf.dtype) for leaf in dense], pool))
        self._dense = [next(made) if _is_dense(leaf) else None for leaf in example.leaves]
        self._others: list[list[Column]] = [[] for _ in example.leaves]
        self._ids: list[RowIds] = []
        self._made_of: list[MadeOf | None] | None = None  # None while no row was made of other rows
        self._count = 0
        self.nbytes = 0
        """Size in bytes of the rows added so far."""

    def __len__(self) -> int:
        return self._count

    def accepts(self, rows: Chunk) -> TypeGuard[Columns]:
        """Return True if ``rows`` have the layout of the batch."""
        return isinstance(rows, Columns) and layout_of(rows) == self._layout

    def add(self, rows: Columns) -> None:
        """Copy more rows into the batch."""
        start, self._count = self._count, self._count + len(rows)
        targets: list[NDArray[Any]] = []
        sources: list[NDArray[Any]] = []
        for target, others, leaf in zip(self._dense, self._others, rows.leaves, strict=True):
            if target is None:
                others.append(owned_column(leaf))
                self.nbytes += column_nbytes(others[-1])
            else:
                assert _is_dense(leaf), "the rows have the layout of the batch"
                targets.append(target[start : self._count])
                sources.append(np.ascontiguousarray(leaf))
                self.nbytes += leaf.nbytes
        _native.copy_arrays(targets, sources)  # in one call: after each, the thread waits for the GIL
        self._ids.append(rows.ids.copy())
        self.nbytes += rows.ids.nbytes
        if rows.made_of is not None and self._made_of is None:
            self._made_of = [None] * start
        if self._made_of is not None:
            self._made_of += rows.made_of or repeat(None, len(rows))

    def rows(self) -> Columns:
        """Return the rows added so far. The caller must not add more rows after this call."""
        leaves = [
            concat_column(others) if target is None else target[: self._count]
            for target, others in zip(self._dense, self._others, strict=True)
        ]
        return Columns(self._structure, tuple(leaves), RowIds.concat(self._ids), None, self._made_of)


def is_large_batch(rows: Chunk, batch_size: int) -> TypeGuard[Columns]:
    """Return True if batches of such rows are large and dense, so that an :class:`OpenBatch` saves time."""
    if not isinstance(rows, Columns) or rows.structure.has_nullable:
        return False
    row_nbytes = sum(leaf.itemsize * math.prod(leaf.shape[1:]) for leaf in rows.leaves if _is_dense(leaf))
    return LARGE_ARRAY_NBYTES <= batch_size * row_nbytes <= MOST_NBYTES


def _is_dense(leaf: Column) -> TypeGuard[NDArray[Any]]:
    return not isinstance(leaf, VarColumn) and not leaf.dtype.hasobject
