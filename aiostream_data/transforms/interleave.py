"""Decide in which order the rows of several streams are taken, as tf.data's ``interleave`` does.

How this works. The machine owns ``cycle_length`` slots and knows of each only whether a stream sits in
it and how many rows of the stream's current chunk are still to be given. Its owner opens streams, cuts
them into chunks as it likes, and asks for steps; a step says "row 3 of slot 0's chunk, row 7 of slot
1's, ..." and why it stopped. Where streams are cut into chunks never changes the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native.ordering_py import EMPTY, ENDED, OPEN, WAIT_FINISHED, WAIT_NOTHING, WAIT_ROWS, WAIT_STREAM
from aiostream_data.errors import PlanError


class Need(Enum):
    """What an order stopped for."""

    NOTHING = WAIT_NOTHING
    STREAM = WAIT_STREAM
    ROWS = WAIT_ROWS
    FINISHED = WAIT_FINISHED


@dataclass(frozen=True, slots=True)
class WaitingStream:
    """Why a step is no longer.

    Attributes:
        need: STREAM: ``slot`` wants a stream. ROWS: ``slot`` wants its next chunk, or to hear that
            there is none. NOTHING: as many rows as asked for. FINISHED: nothing will ever follow.
        slot: The slot for STREAM and ROWS, else -1.
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
    """Part of an order: row ``rows[i]`` of the current chunk of slot ``which[i]`` comes i-th.

    Attributes:
        which: int32, slot per row.
        rows: int64, index in the slot's current chunk per row; ascending within a slot.
        waiting: Why the step ended.
    """

    which: NDArray[np.int32]
    rows: NDArray[np.int64]
    waiting: WaitingStream

    def __len__(self) -> int:
        return len(self.which)


class OrderMark(NamedTuple):
    """A position of an order, as the arrays that it works on."""

    position: NDArray[np.int64]
    status: NDArray[np.uint8]
    next_row: NDArray[np.int64]
    stop_row: NDArray[np.int64]
    given_before: NDArray[np.int64]
    more_streams: bool


class InterleaveOrder:
    """Order of tf.data's ``interleave(cycle_length, block_length)``; resumable, with no I/O.

    Up to ``block_length`` rows are taken from a slot before the next one. The end of a stream is
    noticed only when a row is asked of it after its last; that empties the slot and moves on, and the
    slot is refilled when the cycle comes round to it. Once there are no more streams, empty slots are
    skipped.

    With ``deterministic=False`` a slot without rows is passed over while another slot has some, so the
    order depends on when chunks arrive; every stream's own rows stay in order.

    Args:
        cycle_length: Streams open at once; at least 1.
        block_length: Rows per turn; at least 1.
        deterministic: Whether to wait for the slot whose turn it is.
    """

    def __init__(self, cycle_length: int, block_length: int = 1, deterministic: bool = True) -> None:
        for name, value in (("cycle_length", cycle_length), ("block_length", block_length)):
            if value < 1:
                raise PlanError(f"{name} must be at least 1, got {value}")
        self.cycle_length = cycle_length
        self.block_length = block_length
        self.deterministic = deterministic
        self._more_streams = True
        self._position = np.zeros(2, np.int64)
        self._status = np.zeros(cycle_length, np.uint8)
        self._next_row = np.zeros(cycle_length, np.int64)
        self._stop_row = np.zeros(cycle_length, np.int64)
        self._given_before = np.zeros(cycle_length, np.int64)  # rows of the stream before its current chunk

    def opened(self, slot: int) -> None:
        """Put a new stream into the empty ``slot``."""
        if self._status[slot] != EMPTY:
            raise ValueError(f"slot {slot} still holds a stream")
        self._status[slot] = OPEN
        self._next_row[slot] = self._stop_row[slot] = self._given_before[slot] = 0

    def vacate(self, slot: int) -> None:
        """Remove the stream from ``slot``; none of its rows are loaded."""
        self._status[slot] = EMPTY
        self._given_before[slot] = 0
        if self._position[0] == slot:
            self._position[1] = 0

    def more_streams(self) -> None:
        """Expect more streams, even if a state declared the end."""
        self._more_streams = True

    def no_more_streams(self) -> None:
        """Declare that no stream follows: empty slots stay empty."""
        self._more_streams = False

    def load(self, slot: int, rows: int) -> None:
        """Set the number of rows of the next chunk of ``slot``. The previous chunk is used up."""
        if self._status[slot] != OPEN or self.rows_left(slot) or rows < 0:
            raise ValueError(f"slot {slot} cannot take a chunk of {rows} rows: {self.rows_left(slot)} are left")
        self._given_before[slot] += self._stop_row[slot]
        self._next_row[slot] = 0
        self._stop_row[slot] = rows

    def ended(self, slot: int) -> None:
        """Mark ``slot`` as ended. Rows already loaded are still delivered."""
        if self._status[slot] != OPEN:
            raise ValueError(f"slot {slot} holds no unfinished stream")
        self._status[slot] = ENDED

    def rows_left(self, slot: int) -> int:
        """Return how many rows of the slot's current chunk have not been given yet."""
        return int(self._stop_row[slot] - self._next_row[slot])

    def advance(self, max_rows: int) -> MergeStep:
        """Return the longest order that can be given now, of at most ``max_rows`` rows.

        Rows of a step are given for good; the step that says FINISHED may bring the last ones. A
        deterministic order stops early only for the slot whose turn it is; otherwise ROWS means that no
        slot has rows.
        """
        which, rows, need, slot = _native.interleave_rows(
            self._position,
            self._status,
            self._next_row,
            self._stop_row,
            self.block_length,
            self.deterministic,
            self._more_streams,
            max_rows,
        )
        return MergeStep(which, rows, WaitingStream(Need(need), slot))

    def mark(self) -> OrderMark:
        """Return the position in a form that costs next to nothing, and from which later ones can be found."""
        return OrderMark(
            self._position.copy(),
            self._status.copy(),
            self._next_row.copy(),
            self._stop_row.copy(),
            self._given_before.copy(),
            self._more_streams,
        )

    def after(self, mark: OrderMark, rows: int) -> InterleaveOrder:
        """Return an order that stands ``rows`` rows behind a mark of this one, all of which were given in one step."""
        later = InterleaveOrder(self.cycle_length, self.block_length, self.deterministic)
        later._position, later._status = mark.position.copy(), mark.status.copy()
        later._next_row, later._stop_row = mark.next_row.copy(), mark.stop_row.copy()
        later._given_before, later._more_streams = mark.given_before, mark.more_streams
        if rows:
            later.advance(rows)
        return later

    def state(self) -> dict[str, Any]:
        """Return the position as plain data.

        ``given`` counts, per slot, the rows given of the stream that sits in it, and is None for an
        empty slot: a resumed stream is to be loaded from that row on.
        """
        given = (self._given_before + self._next_row).tolist()
        return {
            "slot": int(self._position[0]),
            "taken": int(self._position[1]),
            "given": [None if self._status[slot] == EMPTY else given[slot] for slot in range(self.cycle_length)],
            "more_streams": self._more_streams,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position. Slots that held a stream hold one again, with no rows loaded.

        An order of more slots begins with empty ones behind those of the state.

        Raises:
            ValueError: The state has more slots.
        """
        given = [*state["given"], *[None] * (self.cycle_length - len(state["given"]))]
        if len(given) != self.cycle_length:
            raise ValueError(f"the state has {len(given)} slots, this order has {self.cycle_length}")
        self._position[:] = state["slot"], state["taken"]
        self._more_streams = state["more_streams"]
        self._status[:] = [EMPTY if rows is None else OPEN for rows in given]
        self._given_before[:] = [rows or 0 for rows in given]
        self._next_row[:] = 0
        self._stop_row[:] = 0
