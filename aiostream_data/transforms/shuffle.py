"""Shuffle rows through a buffer: decide the order, and hold the rows meanwhile.

How this works. :class:`ShuffleOrder` decides. It never sees a row; row n of the stream fills a free
slot, or takes the slot that draw n of the key names, whose row goes out. Which of the two it does
follows from n alone: with a fixed size rows fill until every slot is taken; a growing buffer gives a
row out for every few that it takes in until then. At the end the held rows leave in a permutation of
the slots. So the order is a function of the key and of how many rows came, whatever chunks they came
in, and a position is one number. :class:`ShuffleBuffer` carries it out, one store per column
(``slots.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns, concat
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.randomness import draws_below, key_of, permutation
from aiostream_data.transforms.slots import ColumnSlots, ListSlots
from aiostream_data.transforms.spilled_slots import Spill, SpilledSlots, can_spill

GROW_FROM: Final = 64
"""Rows that a growing buffer holds before it gives the first one out."""

GROW_EVERY: Final = 4
"""A growing buffer gives one row out for so many that come in, and grows by the others."""


class ShuffleOrder:
    """Order of tf.data's ``shuffle(buffer_size)`` for one epoch, with or without the wait; resumable.

    With a fixed size: fill the buffer; then, for every incoming row, give out a uniformly chosen slot
    and put the row in its place; at the end give out what is held, uniformly at random.

    ``growing`` gives rows out long before all slots are taken: after the first :data:`GROW_FROM` rows,
    every :data:`GROW_EVERY`-th one sends out a uniformly chosen row of those held.

    Args:
        buffer_size: Slots; at least 1. 1 keeps the input's order.
        key: From :func:`~aiostream_data.transforms.randomness.key_of`; one per seed and epoch.
        growing: Whether rows go out before every slot is taken.
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
        """How many slots have been filled; they are slots 0 to ``filled`` (excluded)."""
        return self.pushed - self.given_after(self.pushed)

    def push(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what becomes of ``count`` incoming rows.

        Returns:
            Which of them (int64, ascending) fill the next free slots; and for each of the others the
            slot (int64) whose row it sends out and takes. In order: a slot may be drawn twice. Filling
            first and exchanging then is the same as one row after another.
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
        """Return how many rows have gone out after ``pushed`` have come in, the drain left aside."""
        if self.growing and pushed < self.pushed_until_filled(self.buffer_size):
            return max(0, pushed - GROW_FROM) // GROW_EVERY
        return max(0, pushed - self.buffer_size)

    def pushed_for(self, given: int) -> int:
        """Return the least number of pushed rows that sends ``given`` rows out, as if the drain never began."""
        if not given:
            return 0
        if self.growing and given <= self.pushed_until_filled(self.buffer_size) - self.buffer_size:
            return GROW_FROM + given * GROW_EVERY
        return given + self.buffer_size

    def pushed_until_filled(self, slots: int) -> int:
        """Return the number of pushed rows with which slot ``slots - 1`` is filled, in a buffer that large."""
        grown = max(0, slots - GROW_FROM) if self.growing else 0
        return slots + max(0, grown - 1) // (GROW_EVERY - 1)

    def has_doubled(self) -> bool:
        """Whether the last row filled the last of :data:`GROW_FROM` slots, or of twice, four times, ... as many."""
        rounds, odd = divmod(self.filled, GROW_FROM)
        return rounds > 0 and not odd and not rounds & (rounds - 1) and self._filled_last

    def until_doubled(self) -> int | None:
        """Return after how many rows the slots will have doubled or be full; None when they are."""
        if not self.growing or self.filled == self.buffer_size:
            return None
        slots = GROW_FROM
        while self.pushed_until_filled(slots) <= self.pushed:
            slots *= 2
        return self.pushed_until_filled(min(slots, self.buffer_size)) - self.pushed

    def stop_growing(self) -> None:
        """Let the slots filled so far be all there are, in this epoch.

        Raises:
            ValueError: More rows were pushed since the last slot was filled, so that their order would change.
        """
        if not self._filled_last:
            raise ValueError(f"a buffer stops growing with a row that fills a slot, not with row {self.pushed}")
        self.buffer_size = self.filled

    @property
    def _filled_last(self) -> bool:
        return self.pushed == self.pushed_until_filled(self.filled)

    def drain(self, max_rows: int) -> NDArray[np.int64]:
        """Return the next slots (int64) to be given out for good after the last row came; empty at the end."""
        slots = self._drained_slots()[self.drained : self.drained + max_rows]
        self.drained += len(slots)
        return slots

    def occupied(self) -> NDArray[np.int64]:
        """Return the slots that hold a row, ascending."""
        if not self.drained:
            return np.arange(self.filled)
        return np.sort(self._drained_slots()[self.drained :])

    def state(self) -> dict[str, Any]:
        """Return the position as plain data."""
        return {"key": int(self.key), "size": self.buffer_size, "pushed": self.pushed, "drained": self.drained}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position, key and size included."""
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
    """The rows that a :class:`ShuffleOrder` holds back. Not thread-safe.

    Rows are copied in and out, so neither an incoming chunk nor its lease is kept, and the chunks that
    come out share nothing with the buffer. While all chunks share one layout rows are held in columns;
    from the first chunk of another layout on, in a list.

    Args:
        spill: Where rows go when they take more memory than it says; None for nowhere. What comes out is the same.
            :meth:`drop` gives the file back.
        max_nbytes: A growing buffer stops growing where twice its rows would have more bytes. It looks
            each time the rows have doubled, so that where it stops follows from the rows alone.
    """

    def __init__(self, order: ShuffleOrder, max_nbytes: int | None = None, spill: Spill | None = None) -> None:
        self.order = order
        self.max_nbytes = max_nbytes
        self.spill = spill
        self._held: ColumnSlots | ListSlots | SpilledSlots | None = None
        self._given_back = 0  # rows, of a restore
        self._places: NDArray[np.int64] | None = None
        self._slots_held: NDArray[np.int64] | None = None  # after a restore: the slot that each row stands for

    def __len__(self) -> int:
        return self.order.filled - self.order.drained

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, free room included; a list's elements are estimated."""
        return 0 if self._held is None else self._held.nbytes

    @property
    def rows_nbytes(self) -> int:
        """Bytes of the rows held, wherever they are; what :attr:`nbytes` is where all are in memory."""
        return max(self.nbytes, self._held.rows_nbytes(len(self)) if isinstance(self._held, SpilledSlots) else 0)

    @property
    def nbytes_on_disk(self) -> int:
        """Bytes of the file that rows were written to; 0 when there is none."""
        return self._held.nbytes_on_disk if isinstance(self._held, SpilledSlots) else 0

    def push(self, chunk: Chunk) -> Chunk | None:
        """Take in all rows of ``chunk``; return the rows that they send out, or None when there are none."""
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
        """Return how many rows may be pushed before the bytes are looked at again; None for any number."""
        if self.max_nbytes is None or self.order.until_doubled() is None:
            return None
        held = self._held if self.order.has_doubled() else None
        if held is not None and 2 * held.rows_nbytes(self.order.filled) > self.max_nbytes:
            self.order.stop_growing()
        return self.order.until_doubled()

    def _push(self, chunk: Chunk) -> Chunk | None:
        held = self._held_for(chunk)
        free_slot = self.order.filled
        fills, slots = self.order.push(len(chunk))
        if not len(fills):
            return held.exchange(slots, chunk)
        held.fill(free_slot, chunk.take(fills) if len(slots) else chunk)
        return held.exchange(slots, chunk.take(np.delete(np.arange(len(chunk)), fills))) if len(slots) else None

    def drain(self, max_rows: int) -> Chunk | None:
        """Return at most ``max_rows`` of the held rows for good, or None when none is left."""
        slots = self.order.drain(max_rows)
        if not len(slots) or self._held is None:
            return None
        drained = self._held.take(self._position_of(slots))
        if not len(self):
            self.drop()
        return drained

    def drop(self) -> None:
        """Release the rows, and of the file; nothing is pushed or drained after that. Idempotent."""
        held, self._held = self._held, None
        if isinstance(held, SpilledSlots):
            held.close()

    def held(self) -> Lineage:
        """Return which rows are held, by ascending slot."""
        if self._held is None:
            return Lineage(RowIds.none())
        return self._held.lineage(self._position_of(self.order.occupied()))

    def restore(self, state: dict[str, Any], held: Sequence[Chunk]) -> None:
        """Go to a position of the order.

        Args:
            state: From the order's ``state()``.
            held: The rows that were held at that moment, in the order of :meth:`held`.

        Raises:
            ValueError: Another number of rows was held.
        """
        self.begin_restore(state)
        for chunk in held:
            self.give_back(chunk)
        self.end_restore()

    def begin_restore(self, state: dict[str, Any], places: NDArray[np.int64] | None = None) -> None:
        """Go to a position of the order, whose rows are then given back in as many chunks as there may be.

        Args:
            state: From the order's ``state()``.
            places: Which of the rows, by their number in :meth:`held`, is given back first, second, ...; None where
                they come in that order.
        """
        self.order.restore(state)
        self.drop()
        self._slots_held = None
        self._given_back = 0
        self._places = places

    def give_back(self, chunk: Chunk) -> None:
        """Take the next rows back that were held."""
        if not len(chunk):
            return
        first = self._given_back
        self._given_back += len(chunk)
        held = self._held_for(chunk, first)
        if isinstance(held, SpilledSlots):
            held.fill(first, chunk, self._places_of(first, self._given_back))
        else:
            held.fill(first, chunk)
            self._spill_what_is_too_much(self._given_back)

    def end_restore(self) -> None:
        """Finish restoring: all rows are back.

        Raises:
            ValueError: Another number of rows was held.
        """
        if self._given_back != len(self):
            raise ValueError(f"{len(self)} rows were held, {self._given_back} are given back")
        places, self._places = self._places, None
        held = self._held
        if places is not None and isinstance(held, SpilledSlots):
            held.rearrange(places)
        elif places is not None and held is not None:
            rows = held.take(np.argsort(places))
            self._held = None
            self._held_for(rows, 0).fill(0, rows)
        if self.order.drained:
            self._slots_held = self.order.occupied()

    def _places_of(self, first: int, stop: int) -> NDArray[np.int64] | None:
        return None if self._places is None else self._places[first:stop]

    def _spill_what_is_too_much(self, slots_used: int) -> None:
        """Move the rows to a file where they take more memory than they may."""
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

    def _held_for(self, chunk: Chunk, slots_used: int | None = None) -> ColumnSlots | ListSlots | SpilledSlots:
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
