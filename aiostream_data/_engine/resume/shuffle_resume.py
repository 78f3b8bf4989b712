"""Resume a shuffle: save, validate and restore its position and the rows in its buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiostream_data._engine.resume.lineage_reader import Book
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import Position, State, taken_up
from aiostream_data._engine.resume.shuffle_history import HeldHistory, check_history
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.state_fields import MAX_COUNT
from aiostream_data.transforms.randomness import key_of
from aiostream_data.transforms.shuffle_buffer import ShuffleBuffer, ShuffleOrder


class ShufflePosition:
    """Position of one shuffle: number of rows pushed and drained, and the rows in the buffer.

    Attributes:
        state: Saved state from which the run resumes; None in a new run.
        rows_held: Rows in the shuffle buffer of the saved state, in buffer order.
    """

    def __init__(self, buffer: ShuffleBuffer) -> None:
        self.state: dict[str, Any] | None = None
        self.rows_held = Lineage(RowIds.none())
        self._buffer = buffer
        self._history = HeldHistory(buffer)
        self._given = 0
        self._pushed = 0
        self._earlier = 0  # input rows before the order's first row

    def push(self, rows: Lineage) -> None:
        """Record rows immediately before the caller pushes the rows into the shuffle buffer."""
        self._history.push(rows)

    def at(self, rows: int, source: Position, book: BookWriter) -> State:
        """Return the state of the shuffle after this run has emitted ``rows`` rows."""
        pushed, drained = self._moment(rows)
        held = self._history.written(pushed, drained, book)
        before = source.at(pushed - self._pushed, book)
        order = {"size": self._buffer.order.buffer_size, "key": int(self._buffer.order.key)}
        earlier = {"earlier": self._earlier} if self._earlier else {}
        return {"op": "shuffle", "pushed": pushed, "drained": drained, **order, **held, **earlier, "input": before}

    def forget(self, rows: int, source: Position) -> None:
        """Discard the shuffle history before output row number ``rows``."""
        pushed, _ = self._moment(rows)
        self._history.forget(pushed)
        source.forget(pushed - self._pushed)

    def resume(self, state: State, book: Book, *, rows_follow: bool) -> State:
        """Resume the shuffle from ``state``, and return the state of its input.

        Args:
            rows_follow: True if shards were added, so that the input has more rows than in the saved run.
        """
        self.state = taken_up(state, "shuffle")
        self._pushed = self.state["pushed"]
        order = self._buffer.order  # uses size and key of the state; changes of the plan apply from the next epoch
        order.buffer_size, order.key = self.state["size"], np.uint64(self.state["key"])
        self._history.resume(self.state, book)
        self._earlier = self.state.get("earlier", 0)
        self.rows_held = self._history.held(self._pushed, self.state["drained"])
        if self.state["drained"] and rows_follow:
            self._fill_again(self.state)
        self._given = self._pushed - len(self.rows_held)
        return self.state["input"]

    def _fill_again(self, state: dict[str, Any]) -> None:
        """Switch a draining shuffle buffer back to filling, because the input has new shards."""
        order, held = self._buffer.order, len(self.rows_held)
        order.key = key_of(int(order.key), "again", self._pushed)
        pushed = order.pushed_until_filled(held) if held else 0
        self._earlier += self._pushed - pushed
        self._pushed = pushed
        self._history.begin(pushed, self.rows_held)
        self.state = {**state, "key": int(order.key), "pushed": pushed, "drained": 0}

    def _moment(self, rows: int) -> tuple[int, int]:
        """Return the numbers of pushed and drained rows after this run has emitted ``rows`` rows."""
        order = self._buffer.order
        given = self._given + rows
        pushed, so_far = max(order.pushed_for(given), self._pushed), max(order.pushed, self._pushed)
        if pushed <= so_far:
            return pushed, 0
        return so_far, given - order.given_after(so_far)


def input_place(place: Place) -> Place:
    """Validate the saved state of a shuffle, and return the saved position of its input.

    Raises:
        StateMismatchError: A field of the saved state is missing or has an impossible value.
    """
    names = ("pushed", "drained", "size", "key", "base", "since", "input")
    fields = place.fields("shuffle", *names, optional=("earlier",))
    node = place.node if place.scope.exact else None
    least = 1 if node is None or node.growing else node.buffer_rows
    size = fields["size"].integer(least, MAX_COUNT if node is None else node.buffer_rows)
    key = np.uint64(fields["key"].integer(0, 2**64 - 1))
    pushed = fields["pushed"].integer()
    growing = check_history(place, fields, ShuffleOrder(size, key), None if node is None else node.growing)
    given = ShuffleOrder(size, key, growing).given_after(pushed)
    drained = fields["drained"].integer(0, pushed - given)
    earlier = fields["earlier"].integer() if "earlier" in fields else 0
    if not place.rows.includes(earlier + given + drained):
        raise fields["pushed"].refused(
            f"must be the number of input rows for {place.rows.least} to {place.rows.most} output rows"
        )
    return place.of_input(fields["input"], rows=Rows(earlier + pushed, earlier + pushed))
