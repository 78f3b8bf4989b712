"""Compute the order in which rows of several streams are interleaved, as tf.data's ``interleave`` does.

How this works. An order has ``cycle_length`` slots. Per slot it stores only whether a stream is in it, and how many
rows of the stream's current chunk remain. The caller opens streams, loads their chunks, and requests steps. A step
lists rows such as "row 3 of slot 0's chunk, row 7 of slot 1's chunk", and the reason why it ended. Chunk boundaries
never change the order.

Small streams would cost two calls each. So the caller can queue *ready* streams: complete streams whose rows are
consecutive rows of one chunk. The order opens ready streams by itself, many in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native.ordering_py import EMPTY, ENDED, OPEN, WAIT_FINISHED, WAIT_NOTHING, WAIT_ROWS, WAIT_STREAM
from aiostream_data.errors import PlanError

NO_SOURCE = -1
"""Source of a slot that holds no ready stream."""


class Need(Enum):
    """Reason why a merge step ended."""

    NOTHING = WAIT_NOTHING
    STREAM = WAIT_STREAM
    ROWS = WAIT_ROWS
    FINISHED = WAIT_FINISHED


@dataclass(frozen=True, slots=True)
class WaitingStream:
    """Reason why a merge step ended, with the slot concerned.

    Attributes:
        need: With STREAM, the caller must open a stream in ``slot``. With ROWS, the caller must load the next chunk of
            ``slot``, or mark the slot as ended. With NOTHING, the step has the requested number of rows. With FINISHED,
            the order is complete.
        slot: Slot number for STREAM and ROWS, otherwise -1.
    """

    need: Need
    slot: int = -1

    @classmethod
    def stream(cls, slot: int) -> WaitingStream:
        return cls(Need.STREAM, slot)

    @classmethod
    def rows(cls, slot: int) -> WaitingStream:
        return cls(Need.ROWS, slot)


NOTHING = WaitingStream(Need.NOTHING)
FINISHED = WaitingStream(Need.FINISHED)


@dataclass(frozen=True, slots=True)
class MergeStep:
    """Part of an order: its i-th row is row ``rows[i]`` of chunk ``which[i]``.

    Attributes:
        which: int32, key of each row's chunk: the slot for the current chunk of a slot, else the key of ready streams.
        rows: int64, index of each row in its chunk; ascending within a slot.
        waiting: Reason why the step ended.
        is_run: True if the rows are known to be consecutive rows of one chunk.
    """

    which: NDArray[np.int32]
    rows: NDArray[np.int64]
    waiting: WaitingStream
    is_run: bool = field(default=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.which)

    def part(self, start: int, stop: int) -> MergeStep:
        """Return rows ``start`` to ``stop`` of the step."""
        return replace(self, which=self.which[start:stop], rows=self.rows[start:stop])


class OrderMark(NamedTuple):
    """Position of an interleave order, stored as copies of the order's arrays."""

    position: NDArray[np.int64]
    status: NDArray[np.uint8]
    next_row: NDArray[np.int64]
    stop_row: NDArray[np.int64]
    source: NDArray[np.int64]
    given_before: NDArray[np.int64]
    more_streams: bool
    ready: NDArray[np.int64]
    dropped: int


class InterleaveOrder:
    """Row order of tf.data's ``interleave(cycle_length, block_length)``. Resumable; does no I/O.

    The order takes up to ``block_length`` rows from a slot and then moves to the next slot. The order detects the end
    of a stream only when the row after the stream's last row is due. At the end of its stream, a slot becomes empty;
    the next cycle refills the slot. The order skips empty slots if no more streams follow.

    With ``deterministic=False``, the order skips a slot without loaded rows while another slot has loaded rows. With
    ``deterministic=False``, the order depends on the arrival of chunks, but the rows of each stream stay in order.

    Args:
        cycle_length: Number of streams that are open at the same time; at least 1.
        block_length: Number of rows taken from a slot per turn; at least 1.
        deterministic: If True, wait for rows of the slot whose turn it is; if False, continue with another slot.
    """

    def __init__(self, cycle_length: int, block_length: int = 1, deterministic: bool = True) -> None:
        for name, value in (("cycle_length", cycle_length), ("block_length", block_length)):
            if value < 1:
                raise PlanError(f"{name} must be at least 1, got {value}")
        self.cycle_length = cycle_length
        self.block_length = block_length
        self.deterministic = deterministic
        self._more_streams = True
        self._position = np.zeros(3, np.int64)  # slot, rows taken in its block, ready streams opened
        self._status = np.zeros(cycle_length, np.uint8)
        self._next_row = np.zeros(cycle_length, np.int64)
        self._stop_row = np.zeros(cycle_length, np.int64)
        self._given_before = np.zeros(cycle_length, np.int64)  # rows in the stream's earlier chunks
        self._source = np.full(cycle_length, NO_SOURCE, np.int64)  # index in ``_ready``
        self._ready = np.empty((0, 3), np.int64)
        self._dropped = 0  # ready streams before ``_ready``

    @property
    def ready_opened(self) -> int:
        """Number of ready streams opened so far."""
        return self._dropped + int(self._position[2])

    @property
    def ready_dropped(self) -> int:
        """Number of ready streams, counted from the first, that no slot holds any more."""
        return self._dropped

    @property
    def ready_in_use(self) -> int:
        """Number of the first ready stream that has rows left or is not open yet; all streams before it are used up."""
        has_rows = (self._source >= 0) & (self._next_row < self._stop_row)
        in_slots = int(self._source[has_rows].min(initial=int(self._position[2])))
        return self._dropped + in_slots

    def add_ready(self, key: int, rows: NDArray[np.int64]) -> None:
        """Queue complete streams, which are opened one by one in empty slots.

        Args:
            key: Key of the chunk that contains the rows of all streams, one stream after another.
            rows: Number of rows of each stream, int64.
        """
        added = np.empty((len(rows), 3), np.int64)
        added[:, 0], added[:, 1], added[:, 2] = key, np.cumsum(rows) - rows, rows
        first = min(int(self._position[2]), int(self._source[self._source >= 0].min(initial=len(self._ready))))
        self._ready = np.concatenate([self._ready[first:], added])  # marks keep the previous array
        self._position[2] -= first
        self._source[self._source >= 0] -= first
        self._dropped += first

    def opened(self, slot: int) -> None:
        """Assign a new stream to the empty ``slot``."""
        if self._status[slot] != EMPTY:
            raise ValueError(f"slot {slot} still holds a stream")
        self._status[slot] = OPEN
        self._next_row[slot] = self._stop_row[slot] = self._given_before[slot] = 0
        self._source[slot] = NO_SOURCE

    def vacate(self, slot: int) -> None:
        """Remove the stream from ``slot``. No loaded rows may remain in the slot."""
        self._status[slot] = EMPTY
        self._given_before[slot] = 0
        if self._position[0] == slot:
            self._position[1] = 0

    def more_streams(self) -> None:
        """Expect more streams, even if the restored state declared that no more streams follow."""
        self._more_streams = True

    def no_more_streams(self) -> None:
        """Declare that no more streams follow. Empty slots stay empty."""
        self._more_streams = False

    def load(self, slot: int, rows: int) -> None:
        """Set the number of rows in the next chunk of ``slot``.

        All rows of the previous chunk must have been emitted.
        """
        if self._status[slot] != OPEN or self.rows_left(slot) or rows < 0:
            raise ValueError(f"slot {slot} cannot take a chunk of {rows} rows: {self.rows_left(slot)} are left")
        self._given_before[slot] += self._stop_row[slot]
        self._next_row[slot] = 0
        self._stop_row[slot] = rows

    def ended(self, slot: int) -> None:
        """Mark ``slot`` as ended. The order still emits rows of the slot that are already loaded."""
        if self._status[slot] != OPEN:
            raise ValueError(f"slot {slot} holds no unfinished stream")
        self._status[slot] = ENDED

    def ready_stream(self, slot: int) -> int | None:
        """Return the number of the ready stream in ``slot``, counted from the first; None for another stream."""
        source = int(self._source[slot])
        return None if source < 0 else self._dropped + source

    def rows_left(self, slot: int) -> int:
        """Return the number of rows in the slot's current chunk that the order has not emitted yet."""
        return int(self._stop_row[slot] - self._next_row[slot])

    def advance(self, max_rows: int) -> MergeStep:
        """Return the longest possible merge step of at most ``max_rows`` loaded rows.

        The rows of a returned step count as emitted. A step that ends with FINISHED can still contain rows. If a step
        ends with ROWS, a deterministic order needs rows of the slot whose turn it is. In a nondeterministic order, ROWS
        means that no slot has rows.
        """
        which, rows, is_run, need, slot = _native.interleave_rows(
            self._position,
            self._status,
            self._next_row,
            self._stop_row,
            self._source,
            self._ready,
            self.block_length,
            self.deterministic,
            self._more_streams,
            max_rows,
        )
        return MergeStep(which, rows, WaitingStream(Need(need), slot), is_run=is_run)

    def mark(self) -> OrderMark:
        """Return a low-cost copy of the position, for use with :meth:`after`."""
        return OrderMark(
            self._position.copy(),
            self._status.copy(),
            self._next_row.copy(),
            self._stop_row.copy(),
            self._source.copy(),
            self._given_before.copy(),
            self._more_streams,
            self._ready,
            self._dropped,
        )

    def after(self, mark: OrderMark, rows: int) -> InterleaveOrder:
        """Return a copy of this order, positioned ``rows`` rows after the position ``mark``.

        All rows between the two positions must belong to one step.
        """
        later = InterleaveOrder(self.cycle_length, self.block_length, self.deterministic)
        later._position, later._status = mark.position.copy(), mark.status.copy()
        later._next_row, later._stop_row = mark.next_row.copy(), mark.stop_row.copy()
        later._source, later._given_before = mark.source.copy(), mark.given_before.copy()
        later._more_streams, later._ready, later._dropped = mark.more_streams, mark.ready, mark.dropped
        later.go_on(rows)
        return later

    def go_on(self, rows: int) -> None:
        """Move this order by ``rows`` rows of the current step."""
        if rows:
            self.advance(rows)
        self._leave_ended()

    def _leave_ended(self) -> None:
        """Leave the current slot if its stream has ended and all its rows are emitted, as :meth:`advance` would do."""
        for _ in range(self.cycle_length):
            slot = int(self._position[0])
            if self._status[slot] != ENDED or self.rows_left(slot):
                return
            self._status[slot], self._source[slot] = EMPTY, NO_SOURCE
            self._position[:2] = (slot + 1) % self.cycle_length, 0

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data.

        In the state, ``given`` is the number of rows emitted from the stream in each slot, or None for an empty slot. A
        resumed stream starts at the row number in ``given``.
        """
        given = np.where(self._source >= 0, self._next_row, self._given_before + self._next_row).tolist()
        return {
            "slot": int(self._position[0]),
            "taken": int(self._position[1]),
            "given": [None if self._status[slot] == EMPTY else given[slot] for slot in range(self.cycle_length)],
            "more_streams": self._more_streams,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`.

        Each slot that contained a stream at the saved position contains a stream, with no rows loaded.

        If this order has more slots than the state, the additional slots are empty.

        Raises:
            ValueError: The saved state has more slots than this order.
        """
        given = [*state["given"], *[None] * (self.cycle_length - len(state["given"]))]
        if len(given) != self.cycle_length:
            raise ValueError(f"the state has {len(given)} slots, this order has {self.cycle_length}")
        self._position[:] = state["slot"], state["taken"], 0
        self._more_streams = state["more_streams"]
        self._status[:] = [EMPTY if rows is None else OPEN for rows in given]
        self._given_before[:] = [rows or 0 for rows in given]
        self._next_row[:] = 0
        self._stop_row[:] = 0
        self._source[:] = NO_SOURCE
        self._ready, self._dropped = np.empty((0, 3), np.int64), 0
