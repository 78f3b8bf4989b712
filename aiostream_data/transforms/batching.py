"""Cut a stream of rows into batches, and make each batch's element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.rows.lineage import Lineage, MadeOf
from aiostream_data.rows.parts import Parts
from aiostream_data.rows.ragged import RaggedArray, trusted_ragged
from aiostream_data.rows.records import (
    Chunk,
    Column,
    Columns,
    Items,
    VarColumn,
    concat,
    concat_column,
    gather,
    same_layout,
)
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.collate import (
    LARGE_RESULT_NBYTES,
    as_stackable,
    object_array,
    stack,
    stack_leaf,
    stack_leaf_in_parts,
)
from aiostream_data.transforms.ragged_parts import ragged_in_parts

Describe = Callable[[RowIds, int], str]
"""``describe(ids, row)`` names row ``row`` of ``ids`` for messages: "s3://b/x.tfrecord record 17"."""


SHARED_NBYTES = 2 << 20
"""Most bytes that a batch which is kept can keep alive, beyond its own, per leaf."""


class BatchCut(NamedTuple):
    """Rows ``start`` (included) to ``stop`` (excluded) of a chunk go into one batch.

    Attributes:
        completes: The batch is full with them; else they are carried over.
    """

    start: int
    stop: int
    completes: bool


class BatchOrder:
    """Where tf.data's ``batch(batch_size, drop_remainder)`` cuts; resumable.

    Args:
        batch_size: Rows per batch; at least 1.
        drop_remainder: Whether a last batch of fewer rows is left out.
    """

    def __init__(self, batch_size: int, drop_remainder: bool = False) -> None:
        if batch_size < 1:
            raise PlanError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        self.drop_remainder = drop_remainder
        self.carried = 0

    def push(self, count: int) -> list[BatchCut]:
        """Return how ``count`` incoming rows are cut; the first cut joins the rows carried over."""
        cuts = []
        start = 0
        while start < count:
            stop = min(start + self.batch_size - self.carried, count)
            completes = self.carried + stop - start == self.batch_size
            cuts.append(BatchCut(start, stop, completes))
            self.carried = 0 if completes else self.carried + stop - start
            start = stop
        return cuts

    def finish(self) -> bool:
        """End the input; return True if the rows carried over make a last batch."""
        last = self.carried > 0 and not self.drop_remainder
        self.carried = 0
        return last

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {"carried": self.carried}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.carried = state["carried"]


@dataclass(slots=True)
class FullBatch:
    """One batch. Not frozen, because making a frozen one costs more than the batch does.

    Attributes:
        element: The rows' structure; every leaf has the rows on its first axis.
        rows: Where each row came from.
    """

    element: Any
    rows: MadeOf

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> RowIds:
        """RowIds of the rows: int64 of shape (rows, 2 or more)."""
        return self.rows.ids if isinstance(self.rows, Lineage) else self.rows


class Batcher:
    """Makes the batches that a :class:`BatchOrder` cuts. Not thread-safe.

    No chunk, and no lease, is kept by a batch or by the rows carried over: batches are copies. Small ones
    that were cut from one chunk lie in one block of memory, of at most ``SHARED_NBYTES`` per leaf.

    Args:
        order: Where to cut.
        describe: Names rows in errors.
        parts_from: Leave dense leaves as :class:`Parts` of the chunks of at least so many bytes that they stand
            in, and large arrays of functions' results as they are, for whoever writes them into memory of its
            own; None for never. Such batches keep the chunks' memory alive. With 0, values of ragged leaves are
            left, too, where they are long, and so are rows carried over where they are not few.
    """

    def __init__(self, order: BatchOrder, describe: Describe, parts_from: int | None = None) -> None:
        self.order = order
        self._parts_from = parts_from
        self.dropped = 0
        """Rows left out at the end."""
        self._describe = describe
        self.runs: list[RowIds] = []
        """RowIds of the rows of the batches given last, one after another in as few arrays as there are."""
        self.batches: list[FullBatch] = []
        """Batches given last; where a push failed, those that it had made before."""
        self._carry: list[Chunk] = []
        self._carry_nbytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._carry))

    @property
    def nbytes(self) -> int:
        """Bytes of the rows carried over; a list's elements are estimated."""
        return self._carry_nbytes

    def drop(self) -> None:
        """Release the rows carried over; nothing is pushed after that."""
        self._carry, self._carry_nbytes, self.runs, self.batches = [], 0, [], []

    def push(self, chunk: Chunk, own: bool = False) -> list[FullBatch]:
        """Take in all rows of ``chunk``; return the batches that are full with them.

        Args:
            own: Nobody else has the chunk's memory, so batches may be cut from it without a copy, where
                they would have shared one block of at most ``SHARED_NBYTES`` anyway.

        Raises:
            BatchShapeError: Rows of one batch do not stack.
        """
        chunk = as_stackable(chunk)
        self.runs = []
        self.batches = batches = []
        whole: list[BatchCut] = []
        for cut in self.order.push(len(chunk)):
            if cut.completes and not self._carry:
                whole.append(cut)  # a batch that stands in this chunk alone; all of them at once are cheaper
                continue
            part = chunk.slice(cut.start, cut.stop)
            if cut.completes:
                batches.append(self._batch([*self._carried_away(), part]))
            else:
                batches.extend(self._whole_batches(chunk, whole, own))
                whole = []
                self._carry_over(part)
        batches.extend(self._whole_batches(chunk, whole, own))  # what came before one that fails stays
        return batches

    def _whole_batches(self, chunk: Chunk, cuts: Sequence[BatchCut], own: bool) -> Iterable[FullBatch]:
        if not isinstance(chunk, Columns) or not cuts or chunk.made_of is not None or self._is_left(chunk):
            return (self._batch([chunk.slice(cut.start, cut.stop)]) for cut in cuts)
        leaves = [_cut_column(leaf, cuts, own) for leaf in chunk.leaves]
        first = cuts[0].start
        ids = chunk.ids.slice(first, cuts[-1].stop)
        self.runs.append(ids if own and ids.nbytes <= SHARED_NBYTES else ids.copy())
        rows = [self.runs[-1].slice(start - first, stop - first) for start, stop, _ in cuts]
        return map(FullBatch, chunk.structure.rows(leaves), rows)

    def _is_left(self, chunk: Chunk) -> bool:
        """Return True if rows are left where they stand."""
        return self._parts_from is not None and (isinstance(chunk, Items) or chunk.nbytes >= self._parts_from)

    def finish(self) -> list[FullBatch]:
        """Return the last, smaller batch, unless there is none or it is dropped."""
        self.runs = []
        rows, carry = len(self), self._carried_away()
        if self.order.finish():
            return [self._batch(carry)]
        self.dropped += rows
        return []

    def _carry_over(self, rows: Chunk) -> None:
        is_left = self._parts_from == 0 and isinstance(rows, Columns) and rows.nbytes >= LARGE_RESULT_NBYTES
        self._carry.append(rows.with_lease(None) if is_left else _owned(rows))
        self._carry_nbytes += self._carry[-1].nbytes

    def _carried_away(self) -> list[Chunk]:
        carry, self._carry, self._carry_nbytes = self._carry, [], 0
        return carry

    def _batch(self, parts: Sequence[Chunk]) -> FullBatch:
        batch = self._made(parts)
        self.runs.append(batch.ids)
        return batch

    def _made(self, parts: Sequence[Chunk]) -> FullBatch:
        in_parts = any(map(self._is_left, parts))
        if in_parts and same_layout(parts):
            return _batch_in_parts([part for part in parts if isinstance(part, Columns)], self._parts_from == 0)
        rows = concat(parts)
        if isinstance(rows, Items):
            leaf = stack_leaf_in_parts if in_parts else stack_leaf
            return FullBatch(stack(rows.values, lambda row: self._describe(rows.ids, row), leaf), _rows_of(rows))
        shared = len(parts) == 1  # concat copies when there is more than one
        leaves = [batch_leaf(leaf, copy=shared) for leaf in rows.leaves]
        return FullBatch(rows.structure.unflatten(leaves), _rows_of(rows))


def _rows_of(chunk: Chunk) -> MadeOf:
    return Lineage(chunk.ids.copy(), chunk.made_of).as_made_of()


def _cut_column(column: Column, cuts: Sequence[BatchCut], own: bool) -> list[Any]:
    """Return the leaf of every batch; the cuts follow one another."""
    if isinstance(column, VarColumn):
        return [batch_leaf(column.slice(cut.start, cut.stop)) for cut in cuts]
    if own and column.nbytes <= SHARED_NBYTES:
        return [column[start:stop] for start, stop, _ in cuts]
    first = cuts[0].start
    rows = column[first : cuts[-1].stop]
    if rows.nbytes > SHARED_NBYTES:
        return [column[start:stop].copy() for start, stop, _ in cuts]
    # One copy for all: every copy gives the GIL away, and getting it back is what costs.
    block = rows.copy()
    return [block[start - first : stop - first] for start, stop, _ in cuts]


def _batch_in_parts(chunks: Sequence[Columns], ragged: bool) -> FullBatch:
    leaves = [_leaf_in_parts(columns, ragged) for columns in zip(*(chunk.leaves for chunk in chunks), strict=True)]
    ids = RowIds.concat([chunk.ids for chunk in chunks])
    if all(chunk.made_of is None for chunk in chunks):
        return FullBatch(chunks[0].structure.unflatten(leaves), ids)
    made_of = [entry for chunk in chunks for entry in (chunk.made_of or [None] * len(chunk))]
    return FullBatch(chunks[0].structure.unflatten(leaves), Lineage(ids, made_of).as_made_of())


def _leaf_in_parts(columns: Sequence[Column], ragged: bool) -> Any:
    dense = tuple(column for column in columns if not isinstance(column, VarColumn) and not column.dtype.hasobject)
    if len(dense) == len(columns):
        return Parts(dense)
    if ragged:
        of_arrays = [column for column in columns if isinstance(column, VarColumn) and column.kind == "array"]
        in_parts = ragged_in_parts(of_arrays) if len(of_arrays) == len(columns) else None
        if in_parts is not None:
            return in_parts
    return batch_leaf(concat_column(columns))


def batch_leaf(column: Column, copy: bool = True) -> NDArray[Any] | RaggedArray:
    """Return a column as a leaf of a batch element.

    bytes and str rows become an object array; rows of kind array a RaggedArray, also when they happen
    to have one length, so that types never depend on the data. Dense columns are copied if ``copy``.
    """
    if not isinstance(column, VarColumn):
        return np.array(column, order="C", copy=True) if copy else column
    if column.kind != "array":
        return object_array(column.elements())
    packed = column.compact()
    return trusted_ragged(packed.values, np.append(packed.starts, len(packed.values)))


def _owned(chunk: Chunk) -> Chunk:
    """Return the same rows in memory of their own."""
    if isinstance(chunk, Columns):
        rows = np.arange(len(chunk))
        return gather([chunk], np.zeros(len(chunk), np.int32), rows)
    return Items(list(chunk.values), chunk.ids.copy(), None, chunk.made_of)
