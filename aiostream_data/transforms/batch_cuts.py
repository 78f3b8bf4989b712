"""Cut the columns of a chunk into the leaves of several batches, with few copies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import INDEX_NBYTES, Column, VarColumn
from aiostream_data.rows.lent_memory import LendsMemory, copied_to_one_block, empty_array
from aiostream_data.rows.text_arrays import Strings
from aiostream_data.transforms.batch_leaves import ragged_leaves
from aiostream_data.transforms.string_leaves import string_leaves

SHARED_NBYTES = 2 << 20
"""Maximum size in bytes, per leaf, of a memory block that several batches share."""


class BatchCut(NamedTuple):
    """Rows ``start`` (inclusive) to ``stop`` (exclusive) of a chunk, which belong to one batch.

    Attributes:
        completes: True if these rows complete the batch; False if the rows are carried over to the next chunk.
    """

    start: int
    stop: int
    completes: bool


def cut_columns(
    columns: Sequence[Column], cuts: Sequence[BatchCut], own: bool, strings: Strings, pool: LendsMemory | None
) -> list[list[Any]]:
    """Return one leaf per batch for each column. One call copies all small dense columns to one block of memory."""
    start, stop = cuts[0].start, cuts[-1].stop
    small = {} if own else {place: column for place, column in enumerate(columns) if _is_small(column)}
    if len(small) < 2:
        return [_cut_column(column, cuts, own, strings, pool) for column in columns]
    copies = copied_to_one_block([column[start:stop] for column in small.values()], pool)
    copied = dict(zip(small, copies, strict=True))
    return [
        [copied[place][cut.start - start : cut.stop - start] for cut in cuts]
        if place in copied
        else _cut_column(column, cuts, own, strings, pool)
        for place, column in enumerate(columns)
    ]


def _is_small(column: Column) -> TypeGuard[NDArray[Any]]:
    """Return True for a dense column whose batches may share a block of memory."""
    if isinstance(column, VarColumn) or column.dtype.hasobject:
        return False
    return 0 < column.nbytes <= SHARED_NBYTES and column.flags.c_contiguous


def _cut_column(
    column: Column, cuts: Sequence[BatchCut], own: bool, strings: Strings, pool: LendsMemory | None
) -> list[Any]:
    """Return one leaf per batch, cut from a column. The cuts must be adjacent to each other."""
    if isinstance(column, VarColumn):
        bounds = ([(start, stop) for start, stop, _ in some] for some in _sharing(cuts, column))
        if column.kind == "array":
            return [leaf for some in bounds for leaf in ragged_leaves(column, some, pool)]
        return [leaf for some in bounds for leaf in string_leaves(column, some, strings, pool)]
    if own and column.nbytes <= SHARED_NBYTES:
        return [column[start:stop] for start, stop, _ in cuts]
    return [leaf for some in _sharing(cuts, column) for leaf in _copied_together(column, some, pool)]


def _copied_together(column: NDArray[Any], cuts: Sequence[BatchCut], pool: LendsMemory | None) -> list[NDArray[Any]]:
    """Copy the rows of all batches with one call. After each call, the thread waits for the GIL, often for longer."""
    first = cuts[0].start
    rows = column[first : cuts[-1].stop]
    block = empty_array(rows.shape, rows.dtype, pool)
    block[...] = rows
    return [block] if len(cuts) == 1 else [block[start - first : stop - first] for start, stop, _ in cuts]


def _sharing(cuts: Sequence[BatchCut], column: Column) -> Iterator[Sequence[BatchCut]]:
    """Yield runs of batches that share a memory block: of at most ``SHARED_NBYTES``, or of one batch."""
    begin, total = 0, 0
    for place, nbytes in enumerate(_sizes(cuts, column)):
        if place > begin and total + nbytes > SHARED_NBYTES:
            yield cuts[begin:place]
            begin, total = place, 0
        total += nbytes
    yield cuts[begin:]


def _sizes(cuts: Sequence[BatchCut], column: Column) -> list[int]:
    """Return the size in bytes of the rows of each batch."""
    if not isinstance(column, VarColumn):
        row_nbytes = column.itemsize * math.prod(column.shape[1:])
        return [row_nbytes * (stop - start) for start, stop, _ in cuts]
    lengths = column.lengths[: cuts[-1].stop]
    item_nbytes = column.dtype.itemsize * math.prod(column.item_shape)
    items = np.add.reduceat(lengths, [cut.start for cut in cuts]).tolist()
    return [item_nbytes * count + INDEX_NBYTES * (cut.stop - cut.start) for count, cut in zip(items, cuts, strict=True)]
