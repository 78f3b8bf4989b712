"""Stores that keep rows in numbered slots of a shuffle buffer.

A store copies incoming and outgoing rows, so it shares no memory with any chunk. The memory use of a store is
proportional to the number of stored rows. Dense columns are stored in an array that grows with the number of slots in
use. Rows of different lengths share one array (the arena), which is compacted when more than half of the array is
garbage. Rows of bytes or text that all have the same length are stored as a dense column. :mod:`.list_slots` stores
Python objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.lineage import Lineage, MadeOf
from aiostream_data.rows.records import Chunk, Columns, gather, same_layout, with_equal_layouts, with_equal_marks
from aiostream_data.rows.row_id_buffer import RowIdBuffer
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.large_rows import LargeRowSlots, are_large

Slots = NDArray[np.int64]
Rows = TypeVar("Rows")


class SlotStore(Protocol[Rows]):
    """Interface of a store that keeps rows in slots 0, 1, 2, ..."""

    @property
    def nbytes(self) -> int:
        """Allocated memory in bytes, including unused capacity."""

    def fill(self, first: int, rows: Rows) -> None:
        """Store rows in the next free slots, starting at slot number ``first``."""

    def exchange(self, slots: Slots, rows: Rows) -> Rows:
        """For each i in order, replace the row in slot ``slots[i]`` by row i. Return the replaced rows."""

    def take(self, slots: Slots) -> Rows:
        """Return copies of the rows in the given slots."""


class DenseSlots:
    """Store of a dense column with at most ``max_slots`` rows.

    The store allocates memory for at most about twice the rows in use.
    """

    def __init__(self, example: NDArray[Any], max_slots: int) -> None:
        self._rows = np.empty((0, *example.shape[1:]), example.dtype)
        self._max_slots = max_slots

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    @property
    def rows(self) -> NDArray[Any]:
        """Rows of all slots, including unused capacity."""
        return self._rows

    def fill(self, first: int, rows: NDArray[Any]) -> None:
        stop = first + len(rows)
        if stop > len(self._rows):
            room = min(max(stop, 2 * len(self._rows)), self._max_slots)
            grown = np.empty((room, *self._rows.shape[1:]), self._rows.dtype)
            grown[:first] = self._rows[:first]
            self._rows = grown
        self._rows[first:stop] = rows

    def put(self, slots: Slots, rows: NDArray[Any]) -> None:
        """Overwrite the rows in the given slots. All slot numbers must be distinct."""
        self._rows[slots] = rows

    def exchange(self, slots: Slots, rows: NDArray[Any]) -> NDArray[Any]:
        return _native.exchange_rows(self._rows, slots, rows)

    def take(self, slots: Slots) -> NDArray[Any]:
        return _native.take_rows(self._rows, slots)


class VarSlots:
    """Store of a column whose rows differ in length. All values are in one shared array, the arena."""

    def __init__(self, example: VarColumn, max_slots: int) -> None:
        self._kind = example.kind
        self._arena = np.empty((0, *example.item_shape), example.dtype)
        self._used = 0
        self._live = 0
        self._slots_used = 0
        self._starts = DenseSlots(example.starts, max_slots)
        self._lengths = DenseSlots(example.lengths, max_slots)

    @property
    def nbytes(self) -> int:
        return self._arena.nbytes + self._starts.nbytes + self._lengths.nbytes

    def fill(self, first: int, rows: VarColumn) -> None:
        packed = rows.compact()
        self._make_room(len(packed.values))
        stop = self._used + len(packed.values)
        self._arena[self._used : stop] = packed.values
        self._starts.fill(first, packed.starts + self._used)
        self._lengths.fill(first, rows.lengths)
        self._used = stop
        self._live += len(packed.values)
        self._slots_used = first + len(rows)

    def exchange(self, slots: Slots, rows: VarColumn) -> VarColumn:
        added = _native.total_length(rows.lengths)
        self._make_room(added)
        values, starts, lengths, self._used = _native.exchange_spans(
            self._arena,
            self._used,
            self._starts.rows,
            self._lengths.rows,
            slots,
            rows.values,
            rows.starts,
            rows.lengths,
        )
        self._live += added - len(values)
        if self._used > 2 * self._live:
            self._pack()
        return VarColumn(values, starts, lengths, self._kind)

    def take(self, slots: Slots) -> VarColumn:
        starts, lengths = self._starts.take(slots), self._lengths.take(slots)
        return VarColumn(self._arena, starts, lengths, self._kind).compact()

    def _make_room(self, count: int) -> None:
        """Let the arena grow until ``count`` more items fit."""
        stop = self._used + count
        if stop > len(self._arena):
            # The arena is packed at twice the live size, so it grows at most once between two packings.
            grown = np.empty((max(stop, 2 * self._live), *self._arena.shape[1:]), self._arena.dtype)
            grown[: self._used] = self._arena[: self._used]
            self._arena = grown

    def _pack(self) -> None:
        everything = np.arange(self._slots_used)
        packed = self.take(everything)
        self._arena = packed.values
        self._used = len(packed.values)
        self._starts.fill(0, packed.starts)


class SameLengthSlots:
    """Store of a column whose rows can differ in length, but usually do not.

    Rows are stored without starts and lengths until the first row of another length arrives.
    """

    def __init__(self, example: VarColumn, max_slots: int) -> None:
        nothing = np.empty(0, np.int64)
        self._example = VarColumn(np.empty((0, *example.item_shape), example.dtype), nothing, nothing, example.kind)
        self._max_slots = max_slots
        self._length = int(example.lengths[0]) if len(example) else 0
        self._used = 0
        self._dense: DenseSlots | None = DenseSlots(np.empty((0, *self._row_shape), example.dtype), max_slots)
        self._mixed: VarSlots | None = None

    @property
    def nbytes(self) -> int:
        return (self._dense or self._of_any_length()).nbytes

    def fill(self, first: int, rows: VarColumn) -> None:
        if self._dense is not None and self._fits(rows):
            self._dense.fill(first, self._as_dense(rows))
        else:
            self._of_any_length().fill(first, rows)
        self._used = first + len(rows)

    def exchange(self, slots: Slots, rows: VarColumn) -> VarColumn:
        if self._dense is not None and self._fits(rows):
            return self._as_column(self._dense.exchange(slots, self._as_dense(rows)))
        return self._of_any_length().exchange(slots, rows)

    def take(self, slots: Slots) -> VarColumn:
        if self._dense is not None:
            return self._as_column(self._dense.take(slots))
        return self._of_any_length().take(slots)

    @property
    def _row_shape(self) -> tuple[int, ...]:
        return (self._length, *self._example.item_shape)

    def _fits(self, rows: VarColumn) -> bool:
        return not len(rows) or _native.length_range(rows.lengths) == (self._length, self._length)

    def _as_dense(self, rows: VarColumn) -> NDArray[Any]:
        return rows.packed_values().reshape(len(rows), *self._row_shape)

    def _as_column(self, rows: NDArray[Any]) -> VarColumn:
        starts = np.arange(len(rows), dtype=np.int64) * self._length
        lengths = np.full(len(rows), self._length, np.int64)
        values = rows.reshape(len(rows) * self._length, *self._example.item_shape)
        return VarColumn(values, starts, lengths, self._example.kind)

    def _of_any_length(self) -> VarSlots:
        """Return the store for rows of any length. The first call moves all rows to it."""
        if self._mixed is None:
            held = self.take(np.arange(self._used))
            self._dense = None
            self._mixed = VarSlots(self._example, self._max_slots)
            self._mixed.fill(0, held)
        return self._mixed


class MadeOfSlots:
    """Store of the ``made_of`` (lineage) entries of rows.

    The store uses no memory until the first row with a ``made_of`` entry arrives.
    """

    def __init__(self) -> None:
        self._held: list[MadeOf | None] | None = None
        self._used = 0

    def fill(self, first: int, chunk: Chunk) -> None:
        self._used = first + len(chunk)
        if self._held is None and chunk.made_of is None:
            return
        self._held = (self._held or [None] * first)[:first] + (chunk.made_of or [None] * len(chunk))

    def exchange(self, slots: Slots, chunk: Chunk) -> list[MadeOf | None] | None:
        if self._held is None and chunk.made_of is None:
            return None
        held = self._held = self._held or [None] * self._used
        given = []
        for slot, entry in zip(slots.tolist(), chunk.made_of or [None] * len(chunk), strict=True):
            given.append(held[slot])
            held[slot] = entry
        return given

    def take(self, slots: Slots) -> list[MadeOf | None] | None:
        return None if self._held is None else [self._held[slot] for slot in slots.tolist()]


class ColumnSlots:
    """Store for chunks of one layout. It keeps each column in a store of its own.

    Chunks with and without marks of missing values (nullable leaves) have one layout. The store gets the marks of a
    leaf with the first chunk that has them.
    """

    def __init__(self, example: Columns, max_slots: int) -> None:
        self._layout = without_rows(example)
        self._max_slots = max_slots
        self._used = 0
        self._ids = RowIdBuffer(max_slots)
        self._made_of = MadeOfSlots()
        self._stores: list[SlotStore[Any]] = [_store_for(leaf, max_slots) for leaf in example.leaves]

    @property
    def nbytes(self) -> int:
        return self._ids.nbytes + sum(store.nbytes for store in self._stores)

    def as_held(self, rows: Chunk) -> Chunk | None:
        """Return rows in the layout of this store, or None if the rows have another layout."""
        layout, rows = with_equal_marks([self._layout, rows])
        if not same_layout([layout, rows]):
            return None
        assert isinstance(layout, Columns)
        if layout.structure != self._layout.structure:
            self._add_marks(layout)
        return rows

    def as_objects(self, rows: Chunk) -> Chunk | None:
        """Return rows with text as Python objects if they then have the layout of this store, and otherwise None."""
        (_, rows), are_alike = with_equal_layouts([self._layout, rows])
        return rows if are_alike and same_layout([self._layout, rows]) else None

    def _add_marks(self, layout: Columns) -> None:
        """Mark all values of the leaves as present that are nullable in ``layout`` only."""
        stores, self._stores = iter(self._stores), []
        held = self._layout.structure.nullable_leaves()
        for wanted, is_marked in zip(layout.structure.nullable_leaves(), held, strict=True):
            self._stores.append(next(stores))
            if is_marked:
                self._stores.append(next(stores))
            elif wanted:
                marks = DenseSlots(np.empty(0, np.bool_), self._max_slots)
                marks.fill(0, np.ones(self._used, np.bool_))
                self._stores.append(marks)
        self._layout = layout

    def fill(self, first: int, rows: Chunk) -> None:
        assert isinstance(rows, Columns)
        self._used = first + len(rows)
        self._ids.fill(first, rows.ids)
        self._made_of.fill(first, rows)
        for store, leaf in zip(self._stores, rows.leaves, strict=True):
            store.fill(first, leaf)

    def exchange(self, slots: Slots, rows: Chunk) -> Chunk:
        assert isinstance(rows, Columns)
        leaves = tuple(store.exchange(slots, leaf) for store, leaf in zip(self._stores, rows.leaves, strict=True))
        made_of = self._made_of.exchange(slots, rows)
        return Columns(self._layout.structure, leaves, self._ids.exchange(slots, rows.ids), None, made_of)

    def take(self, slots: Slots) -> Chunk:
        leaves = tuple(store.take(slots) for store in self._stores)
        return Columns(self._layout.structure, leaves, self._ids.take(slots), None, self._made_of.take(slots))

    def rows_nbytes(self, rows: int) -> int:
        """Return the size in bytes of a chunk that contains the first ``rows`` rows, without marks of missing values.

        Which rows have marks depends on the chunks in which they came.
        """
        chunk = self.take(np.arange(rows))
        return chunk.nbytes - marks_nbytes(chunk)

    def lineage(self, slots: Slots) -> Lineage:
        return Lineage(self._ids.take(slots), self._made_of.take(slots))


def without_rows(example: Columns) -> Columns:
    """Return a copy without rows, which keeps no array of the chunk alive."""
    nothing = np.empty(0, np.int64)
    copied = gather([example], nothing.astype(np.int32), nothing)
    assert isinstance(copied, Columns)
    return replace(copied, ids=RowIds.run(0, 0, 0))


def marks_nbytes(chunk: Chunk) -> int:
    """Return the size in bytes of a chunk's marks of missing values."""
    return len(chunk) * sum(chunk.structure.nullable_leaves()) if isinstance(chunk, Columns) else 0


def _store_for(column: Column, max_slots: int) -> SlotStore[Any]:
    if not isinstance(column, VarColumn):
        return DenseSlots(column, max_slots)
    return LargeRowSlots(column) if are_large(column) else SameLengthSlots(column, max_slots)
