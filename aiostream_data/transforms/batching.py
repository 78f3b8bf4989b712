"""Cut a stream of rows into batches and assemble the element of each batch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any

from aiostream_data.errors import PlanError
from aiostream_data.rows.columns import (
    Column,
    VarColumn,
    concat_column,
    with_separate_rows,
)
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.lineage import Lineage, MadeOf
from aiostream_data.rows.parts import Parts, may_be_in_parts
from aiostream_data.rows.records import Chunk, Columns, Items, concat, owned, same_layout
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.text_arrays import Strings
from aiostream_data.transforms.batch_cuts import SHARED_NBYTES, BatchCut, cut_columns
from aiostream_data.transforms.batch_leaves import batch_element, batch_leaf, has_objects
from aiostream_data.transforms.collate import (
    LARGE_RESULT_NBYTES,
    StackLeaf,
    as_stackable,
    stack,
    stack_leaf,
)
from aiostream_data.transforms.open_batch import OpenBatch, is_large_batch
from aiostream_data.transforms.padded_room import check_padded_strings, may_exceed
from aiostream_data.transforms.ragged_parts import ragged_in_parts
from aiostream_data.transforms.stacked_parts import stack_leaf_in_parts

Describe = Callable[[RowIds, int], str]
"""Function ``describe(ids, row)`` that returns the name of a row for error messages: "s3://b/x.tfrecord record 17"."""


class BatchOrder:
    """Batch boundaries as in tf.data's ``batch(batch_size, drop_remainder)``. Resumable.

    Args:
        batch_size: Number of rows per batch; at least 1.
        drop_remainder: Drop the last batch if it is incomplete.
    """

    def __init__(self, batch_size: int, drop_remainder: bool = False) -> None:
        if batch_size < 1:
            raise PlanError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        self.drop_remainder = drop_remainder
        self.carried = 0

    def push(self, count: int) -> list[BatchCut]:
        """Return the batch cuts of ``count`` incoming rows.

        The first cut continues the batch of the carried-over rows.
        """
        if not count:
            return []
        size = self.batch_size
        stops = [*range(size - self.carried, count, size), count]
        self.carried = (self.carried + count) % size
        completes = [*repeat(True, len(stops) - 1), not self.carried]
        return list(map(BatchCut._make, zip([0, *stops[:-1]], stops, completes, strict=True)))

    def finish(self) -> bool:
        """End the stream. Return True if the carried-over rows form a last batch."""
        last = self.carried > 0 and not self.drop_remainder
        self.carried = 0
        return last

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data."""
        return {"carried": self.carried}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`."""
        self.carried = state["carried"]


@dataclass(slots=True)
class FullBatch:
    """One batch. The dataclass is not frozen, because creating a frozen instance takes longer than making the batch.

    Attributes:
        element: Element with the structure of the rows; the first axis of each leaf is the row axis.
        rows: Ids and lineage (source row ids) of the rows in this batch.
    """

    element: Any
    rows: MadeOf

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> RowIds:
        """Ids of the rows."""
        return self.rows.ids if isinstance(self.rows, Lineage) else self.rows


class Batcher:
    """Builder of the batches that a :class:`BatchOrder` defines. Not thread-safe.

    Batches and carried-over rows are copies, so they keep no chunk and no memory lease alive. Small batches from one
    chunk share one memory block of at most ``SHARED_NBYTES`` per leaf.

    Args:
        order: Batch boundaries.
        describe: Function that returns the name of a row for error messages.
        parts_from: Minimum chunk size in bytes for which dense leaves become :class:`Parts` (references) instead of
            copies. None always copies. ``parts_from`` also avoids copying large arrays in function results. The
            consumer of a batch copies its parts to their destination. Batches with parts keep the memory of their
            chunks alive. With ``parts_from=0``, long values of ragged leaves and larger sets of carried-over rows are
            also not copied.
        strings: Form of leaves whose rows are bytes or text.
        pool: Pool of memory for large ``bytes`` rows, which are copied once, and for large arrays.
        limit: Memory limit in bytes for the padded leaves of a batch with ``strings="padded"``; None for no limit.
    """

    def __init__(
        self,
        order: BatchOrder,
        describe: Describe,
        parts_from: int | None = None,
        strings: Strings = "objects",
        pool: LendsMemory | None = None,
        limit: int | None = None,
    ) -> None:
        self.order = order
        self._limit = limit if strings == "padded" else None
        self._parts_from = parts_from
        self._strings = strings
        self._pool = pool
        self.dropped = 0
        """Number of rows dropped at the end of the stream."""
        self._describe = describe
        self.runs: list[RowIds] = []
        """Ids of the rows in the most recently returned batches, in order, in as few arrays as possible."""
        self.batches: list[FullBatch] = []
        """Most recently returned batches.

        After a failed push, this list contains the batches that the push built before the error.
        """
        self._carry: list[Chunk] = []
        self._carry_nbytes = 0
        self._open: OpenBatch | None = None
        """The carried-over rows, if they are the first rows of a large batch."""

    def __len__(self) -> int:
        return sum(map(len, self._carry)) + len(self._open or ())

    @property
    def nbytes(self) -> int:
        """Total size in bytes of the rows carried over to the next chunk.

        The size of list elements in these rows is an estimate.
        """
        return self._carry_nbytes + (self._open.nbytes if self._open else 0)

    def drop(self) -> None:
        """Release the carried-over rows. The caller must not push rows after this call."""
        self._carried_away()
        self.runs, self.batches = [], []

    def push(self, chunk: Chunk, own: bool = False) -> list[FullBatch]:
        """Add all rows of ``chunk`` to the open batches. Return the batches completed by the rows of ``chunk``.

        Args:
            own: True if nothing else uses the memory of ``chunk``. If ``own`` is True, leaves of at most
                ``SHARED_NBYTES`` are cut into batches without a copy.

        Raises:
            BatchShapeError: The rows of a batch cannot be stacked.
        """
        chunk = self._with_separate_rows(as_stackable(chunk))
        self.runs = []
        self.batches = batches = []
        cuts = self.order.push(len(chunk))
        left = cuts.pop() if cuts and not cuts[-1].completes else None
        if len(self) and cuts:
            first = cuts.pop(0)
            batches.append(self._completed(chunk.slice(first.start, first.stop)))
        batches.extend(self._whole_batches(chunk, cuts, own))  # extend() keeps batches built before an error
        if left is not None:
            self._carry_over(chunk.slice(left.start, left.stop))
        return batches

    def _whole_batches(self, chunk: Chunk, cuts: Sequence[BatchCut], own: bool) -> Iterable[FullBatch]:
        is_dense = isinstance(chunk, Columns) and not chunk.structure.has_nullable
        if not isinstance(chunk, Columns) or not is_dense or not cuts or self._is_left(chunk) or self._asks_rows(chunk):
            return (self._batch([chunk.slice(cut.start, cut.stop)]) for cut in cuts)
        if self._limit is not None and may_exceed(chunk, self.order.batch_size, self._limit):
            return (self._batch([chunk.slice(cut.start, cut.stop)]) for cut in cuts)
        leaves = cut_columns(chunk.leaves, cuts, own, self._strings, self._pool)
        first = cuts[0].start
        ids = chunk.ids.slice(first, cuts[-1].stop)
        self.runs.append(ids if own and ids.nbytes <= SHARED_NBYTES else ids.copy())
        rows = self.runs[-1].cut([(start - first, stop - first) for start, stop, _ in cuts])
        elements = chunk.structure.rows(leaves)
        if chunk.made_of is None:
            return map(FullBatch, elements, rows)
        entries = (chunk.made_of[start:stop] for start, stop, _ in cuts)
        return map(FullBatch, elements, [Lineage(*each).as_made_of() for each in zip(rows, entries, strict=True)])

    def _with_separate_rows(self, chunk: Chunk) -> Chunk:
        """Make the objects of large ``bytes`` rows, if the batches will contain objects."""
        if self._pool is None or self._strings != "objects" or not isinstance(chunk, Columns):
            return chunk
        leaves = tuple(with_separate_rows(leaf, self._pool) for leaf in chunk.leaves)
        is_same = all(map(operator.is_, leaves, chunk.leaves))
        return chunk if is_same else replace(chunk, leaves=leaves)

    def _asks_rows(self, chunk: Chunk) -> bool:
        """Return True if the form of a leaf depends on the values of its rows, and not only on their column."""
        return self._strings != "objects" and isinstance(chunk, Columns) and has_objects(chunk)

    def _is_left(self, chunk: Chunk) -> bool:
        """Return True if the batches reference the rows of this chunk instead of copying these rows."""
        return self._parts_from is not None and (isinstance(chunk, Items) or chunk.nbytes >= self._parts_from)

    def finish(self) -> list[FullBatch]:
        """End the stream. Return the last, incomplete batch, or an empty list if that batch is empty or dropped."""
        self.runs = []
        rows, carry = len(self), self._carried_away()
        if self.order.finish():
            return [self._batch(carry, own=self._parts_from is None)]
        self.dropped += rows
        return []

    def _completed(self, rows: Chunk) -> FullBatch:
        """Return the batch of the carried-over rows and of ``rows``."""
        if self._open is not None and self._open.accepts(rows):
            self._open.add(rows)
            return self._batch(self._carried_away(), own=True)
        return self._batch([*self._carried_away(), rows])

    def _carry_over(self, rows: Chunk) -> None:
        if self._parts_from is None and not len(self) and is_large_batch(rows, self.order.batch_size):
            self._open = OpenBatch(rows, self.order.batch_size, self._pool)
        if self._open is not None and self._open.accepts(rows):
            self._open.add(rows)
            return
        if self._open is not None:
            self._carry, self._carry_nbytes, self._open = [self._open.rows()], self._open.nbytes, None
        is_left = self._parts_from == 0 and isinstance(rows, Columns) and rows.nbytes >= LARGE_RESULT_NBYTES
        self._carry.append(rows.with_lease(None) if is_left else owned(rows))
        self._carry_nbytes += self._carry[-1].nbytes

    def _carried_away(self) -> list[Chunk]:
        carry: list[Chunk] = self._carry if self._open is None else [self._open.rows()]
        self._carry, self._carry_nbytes, self._open = [], 0, None
        return carry

    def _batch(self, parts: Sequence[Chunk], own: bool = False) -> FullBatch:
        batch = self._made(parts, own)
        self.runs.append(batch.ids)
        return batch

    def _made(self, parts: Sequence[Chunk], own: bool) -> FullBatch:
        in_parts = any(map(self._is_left, parts))
        has_nullable = any(isinstance(part, Columns) and part.structure.has_nullable for part in parts)
        if in_parts and not has_nullable and same_layout(parts) and not any(map(self._asks_rows, parts)):
            self._check_padded(parts)
            return _batch_in_parts(
                [part for part in parts if isinstance(part, Columns)], self._parts_from == 0, self._strings
            )
        rows = concat(parts, self._pool)
        self._check_padded([rows])

        def describe(row: int) -> str:
            return self._describe(rows.ids, row)

        if isinstance(rows, Items):
            leaf: StackLeaf = partial(stack_leaf, pool=self._pool)
            if in_parts:
                leaf = partial(stack_leaf_in_parts, for_device=self._parts_from == 0)
            return FullBatch(stack(rows.values, describe, leaf, self._strings), _rows_of(rows))
        shared = len(parts) == 1 and not own  # concat() copies two or more parts
        return FullBatch(batch_element(rows, describe, shared, self._strings, self._pool), _rows_of(rows))

    def _check_padded(self, parts: Sequence[Chunk]) -> None:
        """Check that padded leaves of bytes and text fit into the memory limit.

        Raises:
            MemoryBudgetError: They do not fit.
        """
        if self._limit is not None:
            check_padded_strings(
                parts, self._limit, lambda row: self._describe(RowIds.concat([part.ids for part in parts]), row)
            )


def as_items(batches: Sequence[FullBatch], runs: list[RowIds] | None = None) -> Items | None:
    """Return batches as elements; None if there are none.

    Each batch has the id of its first row; its lineage lists the ids of all its rows.

    Args:
        runs: Ids of the rows of all batches, in order, in as few arrays as possible.
    """
    if not batches:
        return None
    first = RowIds.firsts([batch.ids for batch in batches])
    rows: list[MadeOf | None] = [batch.rows for batch in batches]
    is_plain = runs is not None and all(type(entry) is RowIds for entry in rows)
    return Items([batch.element for batch in batches], first, None, rows, runs if is_plain else None)


def _rows_of(chunk: Chunk) -> MadeOf:
    return Lineage(chunk.ids.copy(), chunk.made_of).as_made_of()


def _batch_in_parts(chunks: Sequence[Columns], for_device: bool, strings: Strings) -> FullBatch:
    leaves = [
        _leaf_in_parts(columns, for_device, strings)
        for columns in zip(*(chunk.leaves for chunk in chunks), strict=True)
    ]
    ids = RowIds.concat([chunk.ids for chunk in chunks])
    if all(chunk.made_of is None for chunk in chunks):
        return FullBatch(chunks[0].structure.unflatten(leaves), ids)
    made_of: list[MadeOf | None] = []
    for chunk in chunks:
        made_of += chunk.made_of or repeat(None, len(chunk))
    return FullBatch(chunks[0].structure.unflatten(leaves), Lineage(ids, made_of).as_made_of())


def _leaf_in_parts(columns: Sequence[Column], for_device: bool, strings: Strings) -> Any:
    arrays = tuple(column for column in columns if not isinstance(column, VarColumn))
    if len(arrays) == len(columns) and may_be_in_parts(arrays[0].dtype, for_device=for_device):
        return Parts(arrays)
    if for_device:
        of_arrays = [column for column in columns if isinstance(column, VarColumn) and column.kind == "array"]
        in_parts = ragged_in_parts(of_arrays) if len(of_arrays) == len(columns) else None
        if in_parts is not None:
            return in_parts
    return batch_leaf(concat_column(columns), copy=False, strings=strings)
