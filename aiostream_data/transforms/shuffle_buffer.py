"""Shuffle the rows of a stream through a buffer.

How this works. The class :class:`ShuffleOrder` computes the shuffled order from row numbers alone. Row n of the stream
either fills a free slot, or replaces a stored row. Random draw n selects the slot, and the replaced row is emitted. The
choice between filling and replacing depends only on n. A shuffle buffer of fixed size first fills all slots. A growing
shuffle buffer emits one row per :data:`GROW_EVERY` incoming rows until all slots are filled. At the end of the stream,
the remaining rows are emitted in a random order of the slots. The order therefore depends only on the key and the
number of rows, not on chunk boundaries. A position is one number. The class :class:`ShuffleBuffer` stores the rows,
with one store per column (``shuffle_slots.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns, concat, same_layout, with_equal_layouts
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.list_slots import ListSlots
from aiostream_data.transforms.randomness import draws_below, key_of, permutation
from aiostream_data.transforms.shuffle_slots import ColumnSlots
from aiostream_data.transforms.spilled_slots import Spill, SpilledSlots, can_spill

GROW_FROM: Final = 64
"""Number of rows that a growing shuffle buffer stores before emitting the first row."""

GROW_EVERY: Final = 4
"""Number of incoming rows per emitted row while a shuffle buffer grows. The buffer keeps the other rows."""


class ShuffleOrder:
    """Row order of tf.data's ``shuffle(buffer_size)`` for one epoch. Resumable.

    With a fixed size, the first rows of the stream fill the buffer. Each further row replaces the stored row in a
    uniformly chosen slot, and the replaced row is emitted. At the end of the stream, the buffer emits the remaining
    rows in random order.

    A growing buffer emits rows before it is full. After the first :data:`GROW_FROM` rows, every :data:`GROW_EVERY`-th
    row replaces a uniformly chosen stored row, which is emitted.

    Args:
        buffer_size: Number of slots in the buffer; at least 1. A buffer size of 1 keeps the input order.
        key: Random key from :func:`~aiostream_data.transforms.randomness.key_of`, different for each seed and epoch.
        growing: If True, emit rows before all slots of the buffer are filled.
    """

    def __init__(self, buffer_size: int, key: np.uint64, growing: bool = False) -> None:
        if buffer_size < 1:
            raise PlanError(f"buffer_size must be at least 1, got {buffer_size}")
        self.buffer_size = buffer_size
        self.key = key
        self.growing = growing
        self.pushed = 0
        self.drained = 0
        self._drain_order: NDArray[np.int64] | None = None

    @property
    def filled(self) -> int:
        """Number of slots filled so far. The filled slots are 0 to ``filled`` (exclusive)."""
        return self.pushed - self.given_after(self.pushed)

    def push(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Assign buffer slots to ``count`` incoming rows.

        Returns:
            Two int64 arrays. The first array contains the indices of the rows that fill the next free slots, ascending.
            The second array contains, for each of the other rows in order, the slot whose row is replaced; a slot can
            occur twice. Filling all free slots before the replacements gives the same result as processing one row
            after another.
        """
        if self.drained:
            raise ValueError("rows cannot come after the drain began")
        first, self.pushed = self.pushed, self.pushed + count
        until_full = min(count, max(0, self.pushed_until_filled(self.buffer_size) - first))
        if not until_full:
            return np.empty(0, np.int64), draws_below(self.key, first, self.buffer_size, count)
        fills, slots = self._push_growing(first, until_full)
        rest = draws_below(self.key, first + until_full, self.buffer_size, count - until_full)
        return fills, np.concatenate([slots, rest])

    def _push_growing(self, first: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not self.growing:
            return np.arange(count), np.empty(0, np.int64)
        over = np.arange(first, first + count) - GROW_FROM
        sends = (over >= 0) & (over % GROW_EVERY == GROW_EVERY - 1)
        held = np.where(sends, GROW_FROM + over - over // GROW_EVERY, 1)
        return np.flatnonzero(~sends), draws_below(self.key, first, held, count)[sends]

    def given_after(self, pushed: int) -> int:
        """Return the number of rows emitted after ``pushed`` rows arrived, without draining."""
        if self.growing and pushed < self.pushed_until_filled(self.buffer_size):
            return max(0, pushed - GROW_FROM) // GROW_EVERY
        return max(0, pushed - self.buffer_size)

    def pushed_for(self, given: int) -> int:
        """Return how many rows must be pushed until ``given`` rows have been emitted, without draining."""
        if not given:
            return 0
        if self.growing and given <= self.pushed_until_filled(self.buffer_size) - self.buffer_size:
            return GROW_FROM + given * GROW_EVERY
        return given + self.buffer_size

    def pushed_until_filled(self, slots: int) -> int:
        """Return the number of pushed rows after which ``slots`` slots are filled in a sufficiently large buffer."""
        grown = max(0, slots - GROW_FROM) if self.growing else 0
        return slots + max(0, grown - 1) // (GROW_EVERY - 1)

    def has_doubled(self) -> bool:
        """Return True if the last row raised the number of filled slots to :data:`GROW_FROM` times a power of two."""
        rounds, odd = divmod(self.filled, GROW_FROM)
        return rounds > 0 and not odd and not rounds & (rounds - 1) and self._filled_last

    def until_doubled(self) -> int | None:
        """Return the number of rows until the buffer doubles or is full, or None for a full or fixed-size buffer."""
        if not self.growing or self.filled == self.buffer_size:
            return None
        slots = GROW_FROM
        while self.pushed_until_filled(slots) <= self.pushed:
            slots *= 2
        return self.pushed_until_filled(min(slots, self.buffer_size)) - self.pushed

    def stop_growing(self) -> None:
        """Limit the buffer size to the slots filled so far, for this epoch.

        Raises:
            ValueError: Rows were pushed after the last slot was filled, so the limit would change their order.
        """
        if not self._filled_last:
            raise ValueError(f"a buffer stops growing with a row that fills a slot, not with row {self.pushed}")
        self.buffer_size = self.filled

    @property
    def _filled_last(self) -> bool:
        return self.pushed == self.pushed_until_filled(self.filled)

    def drain(self, max_rows: int) -> NDArray[np.int64]:
        """Return the next slots (int64) to empty at the end of the stream, at most ``max_rows``.

        The array is empty at the end.
        """
        slots = self._drained_slots()[self.drained : self.drained + max_rows]
        self.drained += len(slots)
        return slots

    def occupied(self) -> NDArray[np.int64]:
        """Return the numbers of the slots that contain a row, in ascending order."""
        if not self.drained:
            return np.arange(self.filled)
        return np.sort(self._drained_slots()[self.drained :])

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data."""
        return {"key": int(self.key), "size": self.buffer_size, "pushed": self.pushed, "drained": self.drained}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a saved position, including the saved key and buffer size."""
        self.key = np.uint64(state["key"])
        self.buffer_size = state.get("size", self.buffer_size)
        self.pushed = state["pushed"]
        self.drained = state["drained"]
        self._drain_order = None

    def _drained_slots(self) -> NDArray[np.int64]:
        if self._drain_order is None or len(self._drain_order) != self.filled:
            self._drain_order = permutation(key_of(int(self.key), "drain"), self.filled)
        return self._drain_order


class ShuffleBuffer:
    """Storage for the rows of a :class:`ShuffleOrder`. Not thread-safe.

    The buffer copies incoming and outgoing rows. The buffer therefore keeps no incoming chunk or memory lease, and
    emitted chunks share no memory with the buffer. Rows are stored in columns while all chunks have one layout, and in
    a list after the first chunk of a different layout. Marks of missing values do not count as a different layout.

    Args:
        order: Shuffled order of the rows.
        max_nbytes: Maximum size of a growing buffer in bytes. Growth stops when doubling the rows would exceed this
            size. The size is checked each time the number of rows has doubled, so the result depends only on the rows.
        spill: Settings of the spill file, or None for no file. Rows move to this file when their size exceeds the
            memory threshold of the settings. Spilling does not change the output. :meth:`drop` deletes the spill file.
    """

    def __init__(self, order: ShuffleOrder, max_nbytes: int | None = None, spill: Spill | None = None) -> None:
        self.order = order
        self.max_nbytes = max_nbytes
        self.spill = spill
        self._held: ColumnSlots | ListSlots | SpilledSlots | None = None
        self._given_back = 0  # number of rows restored so far
        self._places: NDArray[np.int64] | None = None
        self._slots_held: NDArray[np.int64] | None = None  # after a restore during the drain: slot of each stored row

    def __len__(self) -> int:
        return self.order.filled - self.order.drained

    @property
    def nbytes(self) -> int:
        """Allocated memory of the buffer in bytes, including free capacity.

        The size of list elements in the buffer is an estimate.
        """
        return 0 if self._held is None else self._held.nbytes

    @property
    def rows_nbytes(self) -> int:
        """Size of the stored rows in bytes, in memory and on disk.

        If all rows are in memory, this size equals :attr:`nbytes`.
        """
        return max(self.nbytes, self._held.rows_nbytes(len(self)) if isinstance(self._held, SpilledSlots) else 0)

    @property
    def nbytes_on_disk(self) -> int:
        """Size of the spill file in bytes; 0 without a spill file."""
        return self._held.nbytes_on_disk if isinstance(self._held, SpilledSlots) else 0

    def push(self, chunk: Chunk) -> Chunk | None:
        """Push the rows of ``chunk`` into the buffer. Return the rows that the new rows displaced, or None."""
        parts: list[Chunk] = []
        while len(chunk):
            until_look = self._until_look()
            rows = len(chunk) if until_look is None else min(len(chunk), until_look)
            part = self._push(chunk.slice(0, rows) if rows < len(chunk) else chunk)
            self._spill_what_is_too_much(self.order.filled)
            if part is not None:
                parts.append(part)
            chunk = chunk.slice(rows, len(chunk))
        return concat(parts) if parts else None

    def _until_look(self) -> int | None:
        """Return how many rows can be pushed before the next size check, or None if no size check remains."""
        if self.max_nbytes is None or self.order.until_doubled() is None:
            return None
        held = self._held if self.order.has_doubled() else None
        if held is not None and 2 * held.rows_nbytes(self.order.filled) > self.max_nbytes:
            self.order.stop_growing()
        return self.order.until_doubled()

    def _push(self, chunk: Chunk) -> Chunk | None:
        held, chunk = self._held_for(chunk)
        free_slot = self.order.filled
        fills, slots = self.order.push(len(chunk))
        if not len(fills):
            return held.exchange(slots, chunk)
        held.fill(free_slot, chunk.take(fills) if len(slots) else chunk)
        return held.exchange(slots, chunk.take(np.delete(np.arange(len(chunk)), fills))) if len(slots) else None

    def drain(self, max_rows: int) -> Chunk | None:
        """At the end of the stream, remove and return the next ``max_rows`` rows, or None if the buffer is empty."""
        slots = self.order.drain(max_rows)
        if not len(slots) or self._held is None:
            return None
        drained = self._held.take(self._position_of(slots))
        if not len(self):
            self.drop()
        return drained

    def drop(self) -> None:
        """Release the stored rows and the spill file.

        The caller must not push or drain rows after this call. Idempotent.
        """
        held, self._held = self._held, None
        if isinstance(held, SpilledSlots):
            held.close()

    def held(self) -> Lineage:
        """Return the lineage (source row ids) of the stored rows, in ascending slot order."""
        if self._held is None:
            return Lineage(RowIds.none())
        return self._held.lineage(self._position_of(self.order.occupied()))

    def restore(self, state: dict[str, Any], held: Sequence[Chunk]) -> None:
        """Restore a position saved by :meth:`ShuffleOrder.state`.

        Args:
            state: Result of the shuffle order's ``state()``.
            held: The rows that were stored at the saved position, in the same order as the result of :meth:`held`.

        Raises:
            ValueError: The number of rows differs from the number in the state.
        """
        self.begin_restore(state)
        for chunk in held:
            self.give_back(chunk)
        self.end_restore()

    def begin_restore(self, state: dict[str, Any], places: NDArray[np.int64] | None = None) -> None:
        """Start restoring a saved position.

        After this call, pass the stored rows to :meth:`give_back`, in any number of chunks.

        Args:
            state: Result of the shuffle order's ``state()``.
            places: Index of each restored row in the result of :meth:`held`; None if the rows arrive in that order.
        """
        self.order.restore(state)
        self.drop()
        self._slots_held = None
        self._given_back = 0
        self._places = places

    def give_back(self, chunk: Chunk) -> None:
        """Restore the next of the rows that were stored at the saved position."""
        if not len(chunk):
            return
        first = self._given_back
        self._given_back += len(chunk)
        held, chunk = self._held_for(chunk, first)
        if isinstance(held, SpilledSlots):
            held.fill(first, chunk, self._places_of(first, self._given_back))
        else:
            held.fill(first, chunk)
            self._spill_what_is_too_much(self._given_back)

    def end_restore(self) -> None:
        """Finish restoring the buffer, after all stored rows were passed to :meth:`give_back`.

        Raises:
            ValueError: The number of restored rows differs from the number in the state.
        """
        if self._given_back != len(self):
            raise ValueError(f"the buffer held {len(self)} rows, but {self._given_back} rows were recomputed")
        places, self._places = self._places, None
        held = self._held
        if places is not None and isinstance(held, SpilledSlots):
            held.rearrange(places)
        elif places is not None and held is not None:
            rows = held.take(np.argsort(places))
            self._held = None
            self._held_for(rows, 0)[0].fill(0, rows)
        if self.order.drained:
            self._slots_held = self.order.occupied()

    def _places_of(self, first: int, stop: int) -> NDArray[np.int64] | None:
        return None if self._places is None else self._places[first:stop]

    def _spill_what_is_too_much(self, slots_used: int) -> None:
        """Move the stored rows to a spill file if their size exceeds the memory threshold."""
        held, spill = self._held, self.spill
        if spill is None or held is None or isinstance(held, SpilledSlots) or held.nbytes <= spill.memory_nbytes:
            return
        example = held.take(np.empty(0, np.int64))
        if not can_spill(example):
            return
        spilled = SpilledSlots(example if isinstance(example, Columns) else None, self.order.buffer_size, spill)
        at_once = max(1, spill.segment_nbytes * slots_used // held.nbytes)
        try:
            for first in range(0, slots_used, at_once):
                stop = min(slots_used, first + at_once)
                spilled.fill(first, held.take(np.arange(first, stop)), self._places_of(first, stop))
        except BaseException:
            spilled.close()
            raise
        self._held = spilled

    def _held_for(
        self, chunk: Chunk, slots_used: int | None = None
    ) -> tuple[ColumnSlots | ListSlots | SpilledSlots, Chunk]:
        """Return a slot store that can take the rows of ``chunk``, and these rows in the store's layout.

        If the layout changed, move the stored rows to a new store.
        """
        if self._held is None:
            size = self.order.buffer_size
            self._held = ColumnSlots(chunk, size) if isinstance(chunk, Columns) else ListSlots(size)
        rows = self._held.as_held(chunk)
        if rows is None and self.spill is None and isinstance(self._held, ColumnSlots):
            rows = self._held.as_objects(chunk)
        if rows is not None:
            return self._held, rows
        used = self.order.filled if slots_used is None else slots_used
        everything, rows = self._with_one_layout(self._held.take(np.arange(used)), chunk)
        size = self.order.buffer_size
        is_of_columns = isinstance(everything, Columns) and same_layout([everything, rows])
        self._held = ColumnSlots(everything, size) if is_of_columns else ListSlots(size)  # type: ignore[arg-type]
        self._held.fill(0, everything)
        return self._held, rows

    def _with_one_layout(self, held: Chunk, chunk: Chunk) -> Sequence[Chunk]:
        """Return the chunks with text as Python objects where one has objects. A spill file has no such columns."""
        return [held, chunk] if self.spill else with_equal_layouts([held, chunk])[0]

    def _position_of(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        return slots if self._slots_held is None else np.searchsorted(self._slots_held, slots)
