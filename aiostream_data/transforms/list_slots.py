"""Store that keeps rows of any layout as Python objects in numbered slots of a shuffle buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiostream_data.rows.columns import Column, VarColumn, column_elements
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.rows.row_id_buffer import RowIdBuffer
from aiostream_data.transforms.shuffle_slots import DenseSlots, MadeOfSlots, Slots


class ListSlots:
    """Store for chunks of any layout, which contains a list of elements and the size of each in bytes."""

    def __init__(self, max_slots: int) -> None:
        self._values: list[Any] = []
        self._ids = RowIdBuffer(max_slots)
        self._made_of = MadeOfSlots()
        self._sizes = DenseSlots(np.empty(0, np.int64), max_slots)
        self._values_nbytes = 0

    @property
    def nbytes(self) -> int:
        return self._ids.nbytes + self._sizes.nbytes + self._values_nbytes

    def as_held(self, rows: Chunk) -> Chunk:
        return rows

    def fill(self, first: int, rows: Chunk) -> None:
        items = as_items(rows)
        self._values[first:] = items.values
        self._ids.fill(first, rows.ids)
        self._made_of.fill(first, rows)
        self._sizes.fill(first, items.known_sizes)
        self._values_nbytes += int(items.known_sizes.sum())

    def exchange(self, slots: Slots, rows: Chunk) -> Chunk:
        items = as_items(rows)
        given = []
        for slot, value in zip(slots.tolist(), items.values, strict=True):
            given.append(self._values[slot])
            self._values[slot] = value
        sizes = self._sizes.exchange(slots, items.known_sizes)
        self._values_nbytes += int(items.known_sizes.sum() - sizes.sum())
        made_of = self._made_of.exchange(slots, rows)
        return Items(given, self._ids.exchange(slots, rows.ids), None, made_of, None, sizes)

    def take(self, slots: Slots) -> Chunk:
        values = [self._values[slot] for slot in slots.tolist()]
        return Items(values, self._ids.take(slots), None, self._made_of.take(slots), None, self._sizes.take(slots))

    def rows_nbytes(self, rows: int) -> int:
        """Return the size in bytes of a chunk that contains the first ``rows`` rows."""
        return self.take(np.arange(rows)).nbytes

    def lineage(self, slots: Slots) -> Lineage:
        return Lineage(self._ids.take(slots), self._made_of.take(slots))


def as_items(chunk: Chunk) -> Items:
    """Return the rows of a chunk as elements that keep no array of the chunk alive."""
    return chunk if isinstance(chunk, Items) else Items(owned_elements(chunk), chunk.ids, None, chunk.made_of)


def owned_elements(chunk: Chunk) -> list[Any]:
    """Return the elements of a chunk. Views are copied, so that no element keeps the chunk's arrays alive."""
    if isinstance(chunk, Items):
        return chunk.values
    return chunk.structure.rows([_owned_column_elements(leaf) for leaf in chunk.leaves])


def _owned_column_elements(column: Column) -> list[Any]:
    elements = column_elements(column)
    is_view = column.kind == "array" if isinstance(column, VarColumn) else column.ndim > 1
    return [element.copy() for element in elements] if is_view else elements
