"""Shuffle rows through a buffer: decide the order, and hold the rows meanwhile.

How this works. :class:`ShuffleOrder` decides. It never sees a row; row n of the stream fills slot n
while there are free slots, and after that takes the slot that draw n of the key names, whose row goes
out. At the end the held rows leave in a permutation of the slots. So the order is a function of the
key and of how many rows came, whatever chunks they came in, and a position is one number.
:class:`ShuffleBuffer` carries it out, one store per column (``slots.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.records import Chunk, Columns, Lineage
from aiostream_data.transforms.randomness import draws_below, key_of, permutation
from aiostream_data.transforms.slots import ColumnSlots, ListSlots


class ShuffleOrder:
    """Order of tf.data's ``shuffle(buffer_size)`` for one epoch; resumable.

    Fill the buffer; then, for every incoming row, give out a uniformly chosen slot and put the row in
    its place; at the end give out what is held, uniformly at random.

    Args:
        buffer_size: Slots; at least 1. 1 keeps the input's order.
        key: From :func:`~aiostream_data.transforms.randomness.key_of`; one per seed and epoch.
    """

    def __init__(self, buffer_size: int, key: np.uint64) -> None:
        if buffer_size < 1:
            raise PlanError(f"buffer_size must be at least 1, got {buffer_size}")
        self.buffer_size = buffer_size
        self.key = key
        self.pushed = 0
        self.drained = 0
        self._drain_order: NDArray[np.int64] | None = None

    @property
    def filled(self) -> int:
        """How many slots have been filled; they are slots 0 to ``filled`` (excluded)."""
        return min(self.pushed, self.buffer_size)

    def push(self, count: int) -> tuple[int, NDArray[np.int64]]:
        """Return what becomes of ``count`` incoming rows.

        Returns:
            How many of them, from the first on, fill the next free slots; and for each of the others
            the slot (int64) whose row it sends out and takes. In order: a slot may be drawn twice.
        """
        if self.drained:
            raise ValueError("rows cannot come after the drain began")
        fills = min(count, self.buffer_size - self.filled)
        first = self.pushed + fills
        self.pushed += count
        return fills, draws_below(self.key, first, self.buffer_size, count - fills)

    def drain(self, max_rows: int) -> NDArray[np.int64]:
        """Return the next slots (int64) to be given out for good after the last row came; empty at the end."""
        slots = self._drained_slots()[self.drained : self.drained + max_rows]
        self.drained += len(slots)
        return slots

    def pushed_for(self, given: int) -> int:
        """Return the least number of pushed rows that sends ``given`` rows out, as if the drain never began."""
        return given + self.buffer_size if given else 0

    def occupied(self) -> NDArray[np.int64]:
        """Return the slots that hold a row, ascending."""
        if not self.drained:
            return np.arange(self.filled)
        return np.sort(self._drained_slots()[self.drained :])

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {"key": int(self.key), "pushed": self.pushed, "drained": self.drained}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position, key included."""
        self.key = np.uint64(state["key"])
        self.pushed = state["pushed"]
        self.drained = state["drained"]
        self._drain_order = None

    def _drained_slots(self) -> NDArray[np.int64]:
        if self._drain_order is None or len(self._drain_order) != self.filled:
            self._drain_order = permutation(key_of(int(self.key), "drain"), self.filled)
        return self._drain_order


class ShuffleBuffer:
    """The rows that a :class:`ShuffleOrder` holds back. Not thread-safe.

    Rows are copied in and out, so neither an incoming chunk nor its lease is kept, and the chunks that
    come out share nothing with the buffer. While all chunks share one layout rows are held in columns;
    from the first chunk of another layout on, in a list.
    """

    def __init__(self, order: ShuffleOrder) -> None:
        self.order = order
        self._held: ColumnSlots | ListSlots | None = None
        self._slots_held: NDArray[np.int64] | None = None  # after a restore: the slot that each row stands for

    def __len__(self) -> int:
        return self.order.filled - self.order.drained

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, free room included; a list's elements are estimated."""
        return 0 if self._held is None else self._held.nbytes

    def push(self, chunk: Chunk) -> Chunk | None:
        """Take in all rows of ``chunk``; return the rows that they send out, or None when there are none."""
        if not len(chunk):
            return None
        held = self._held_for(chunk)
        free_slot = self.order.filled
        fills, slots = self.order.push(len(chunk))
        if fills:
            held.fill(free_slot, chunk.slice(0, fills))
        return held.exchange(slots, chunk.slice(fills, len(chunk))) if len(slots) else None

    def drain(self, max_rows: int) -> Chunk | None:
        """Return at most ``max_rows`` of the held rows for good, or None when none is left."""
        slots = self.order.drain(max_rows)
        if not len(slots) or self._held is None:
            return None
        drained = self._held.take(self._position_of(slots))
        if not len(self):
            self._held = None
        return drained

    def held(self) -> Lineage:
        """Return which rows are held, by ascending slot."""
        if self._held is None:
            return Lineage(np.empty((0, 2), np.int64))
        return self._held.lineage(self._position_of(self.order.occupied()))

    def restore(self, state: dict[str, Any], held: Sequence[Chunk]) -> None:
        """Go to a position of the order.

        Args:
            state: From the order's ``state()``.
            held: The rows that were held at that moment, in the order of :meth:`held`.

        Raises:
            ValueError: Another number of rows was held.
        """
        self.order.restore(state)
        rows = sum(map(len, held))
        if rows != len(self):
            raise ValueError(f"{len(self)} rows were held, {rows} are given back")
        self._held, self._slots_held = None, None
        free_slot = 0
        for chunk in held:
            if len(chunk):
                self._held_for(chunk, free_slot).fill(free_slot, chunk)
                free_slot += len(chunk)
        if self.order.drained:
            self._slots_held = self.order.occupied()

    def _held_for(self, chunk: Chunk, slots_used: int | None = None) -> ColumnSlots | ListSlots:
        """Return a store that accepts ``chunk`` and holds what was held."""
        if self._held is None:
            size = self.order.buffer_size
            self._held = ColumnSlots(chunk, size) if isinstance(chunk, Columns) else ListSlots(size)
        elif not self._held.accepts(chunk):
            used = self.order.filled if slots_used is None else slots_used
            everything = self._held.take(np.arange(used))
            self._held = ListSlots(self.order.buffer_size)
            self._held.fill(0, everything)
        return self._held

    def _position_of(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        return slots if self._slots_held is None else np.searchsorted(self._slots_held, slots)
