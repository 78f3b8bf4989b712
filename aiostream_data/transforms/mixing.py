"""Decide which input of a mixture every row comes from, by weights that may change on the way.

How this works. The order is a list of choices, one input per row, that depends on weights and row
numbers alone. It is made ahead in blocks: dealt, so that every input's count stays within one row of
its share, or drawn at random. Then it is followed as far as rows are loaded. Where the inputs are cut
into chunks therefore never changes the order. When the weights change, or an exhausted input drops out,
the choices not followed yet are thrown away; what each input was due by then is carried over, so that
no change ever loses or gains it rows. A step stays within its block: what holds at its beginning and its
own choices tell the place after any of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.errors import PlanError
from aiostream_data.transforms.interleave import FINISHED, NOTHING, MergeStep, WaitingStream
from aiostream_data.transforms.randomness import draws_below
from aiostream_data.transforms.stock import Stock
from aiostream_data.weights import Schedule, Stop, Vector, shares_of

BLOCK_ROWS = 16384
"""Rows whose inputs are chosen at a time."""


class MixPlace(NamedTuple):
    """Where an order stood before a step, and what the step chose: enough for the place after any of its rows.

    Attributes:
        row: Number of the step's first row.
        given: int64, rows given of each input.
        lags: int64, rows due to each input, times ``unit``.
        shares: int64, what each input is due per row of the step, times ``unit``.
        dropped: Inputs that have dropped out.
        which: int32, input per row of the step.
    """

    row: int
    given: NDArray[np.int64]
    lags: NDArray[np.int64]
    shares: NDArray[np.int64]
    unit: int
    dropped: tuple[int, ...]
    which: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class MixStep(MergeStep):
    """A step, and its place."""

    place: MixPlace


class MixOrder:
    """Order of a weighted mixture; resumable, with no I/O.

    While the weights stay the same, the rows of every input are within 1 of its share of the rows given
    since they are in force. An input of weight 0 is never asked for rows. With ``stop="all"`` an input
    that is asked for a row after its last one drops out, and the others keep their proportions.

    Args:
        schedule: The weights, by row of the mixture.
        stop: "first" or "all".
        random_key: Draw the input of every row independently, by this key and the row's number.
    """

    def __init__(self, schedule: Schedule, stop: Stop = "first", random_key: np.uint64 | None = None) -> None:
        self.schedule = schedule
        self.stop = stop
        self.stock = Stock(len(schedule.names))
        self._random_key = random_key
        self._dropped = [False] * self.stock.inputs
        self._first_row = 0  # of the block
        self._choices = np.empty(0, np.int32)
        self._followed = 0
        self._shares = np.zeros(self.stock.inputs, np.int64)
        self._lags = np.zeros(self.stock.inputs, np.int64)  # rows due minus rows had, in units; before the block
        self._unit = 1  # shares of a row

    @property
    def row(self) -> int:
        """Number of the next row."""
        return self._first_row + self._followed

    def set_weights(self, weights: Vector, from_row: int | None = None) -> int:
        """Use other weights from a row on, whatever the schedule says; return the row.

        Args:
            weights: One per input.
            from_row: A row not given yet; the next one when None.

        Raises:
            PlanError: ``from_row`` was given already.
        """
        row = self.row if from_row is None else from_row
        if row < self.row:
            raise PlanError(f"weights cannot change from row {row} on: the next row is {self.row}")
        self.schedule = self.schedule.changed(row, weights).since(self.row)
        self._close_block()
        return row

    def load(self, slot: int, rows: int) -> None:
        """Set the number of rows of the next chunk of ``slot``. The previous chunk is used up."""
        self.stock.load(slot, rows)

    def ended(self, slot: int) -> None:
        """Mark ``slot`` as ended. Rows already loaded are still delivered."""
        self.stock.ended(slot)

    def rows_left(self, slot: int) -> int:
        """Return how many rows of the slot's current chunk have not been given yet."""
        return self.stock.rows_left(slot)

    def advance(self, max_rows: int) -> MixStep:
        """Return an order of at most ``max_rows`` rows that can be given now; the longest within its block.

        Rows of a step are given for good. NOTHING may come with any number of rows.

        Raises:
            PlanError: A function that gives weights returned something else.
        """
        if self._followed == len(self._choices) and not self._next_block():
            return MixStep(self._choices, np.empty(0, np.int64), FINISHED, self._place())
        place = self._place()
        choices = self._choices[self._followed : self._followed + max(0, max_rows)]
        rows = self.stock.follow(choices)
        self._followed += len(rows)
        waiting = NOTHING if len(rows) == len(choices) else self._without_rows(int(choices[len(rows)]))
        which = choices[: len(rows)]
        return MixStep(which, rows, waiting, place._replace(which=which))

    def _without_rows(self, slot: int) -> WaitingStream:
        """Decide what it means that ``slot`` has no row loaded although it is its turn."""
        if not self.stock.has_ended[slot]:
            return WaitingStream.rows(slot)
        if self.stop == "first":
            return FINISHED
        self._close_block()
        self._dropped[slot] = True
        return NOTHING

    def _next_block(self) -> bool:
        """Choose the inputs of the next rows; False when no input can give any more."""
        self._close_block()
        span = self.schedule.at(self.row)
        weights = tuple(0.0 if gone else weight for weight, gone in zip(span.weights, self._dropped, strict=True))
        if not any(weights):
            return False
        shares = shares_of(weights)
        count = BLOCK_ROWS if span.until is None else min(BLOCK_ROWS, span.until - self.row)
        self._lags = np.array(_carried_over(self._lags.tolist(), self._unit, shares), np.int64)
        self._shares, self._unit = np.array(shares, np.int64), sum(shares)
        self._choices = self._chosen(count)
        return True

    def _chosen(self, count: int) -> NDArray[np.int32]:
        if self._random_key is None:
            return _native.deal_rows(self._shares, self._lags.copy(), count)
        drawn = draws_below(self._random_key, self.row, self._unit, count)
        return np.searchsorted(np.cumsum(self._shares), drawn, side="right").astype(np.int32)

    def _close_block(self) -> None:
        """Forget the choices not followed, and note what each input is due by now."""
        self._lags = self._lags_now()
        self._first_row = self.row
        self._choices = self._choices[:0]
        self._followed = 0

    def _lags_now(self) -> NDArray[np.int64]:
        return self._lags_after(self._lags, self._shares, self._unit, self._choices[: self._followed])

    def _lags_after(
        self, lags: NDArray[np.int64], shares: NDArray[np.int64], unit: int, which: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        if self._random_key is not None:
            return lags
        return lags + shares * len(which) - np.bincount(which, minlength=len(lags)) * unit

    def _place(self) -> MixPlace:
        dropped = tuple(number for number, gone in enumerate(self._dropped) if gone)
        nothing = self._choices[:0]
        return MixPlace(self.row, self.stock.given, self._lags_now(), self._shares, self._unit, dropped, nothing)

    def state(self) -> dict[str, Any]:
        """Return the position as plain data; see :meth:`state_at`."""
        return self.state_at(self._place(), 0)

    def state_at(self, place: MixPlace, rows: int) -> dict[str, Any]:
        """Return the position after the first ``rows`` rows of a step as plain data. Safe from any thread.

        ``given`` counts the rows given of each input: a resumed input is to be loaded from that row on.
        ``lags`` are the rows that each is due, times ``unit``. The schedule is no part of it, with all
        its changes: whoever makes an order anew gives it one.
        """
        which = place.which[:rows]
        return {
            "row": place.row + rows,
            "given": (place.given + np.bincount(which, minlength=self.stock.inputs)).tolist(),
            "dropped": list(place.dropped),
            "lags": self._lags_after(place.lags, place.shares, place.unit, which).tolist(),
            "unit": place.unit,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position, with no rows loaded. Weights may be other ones by now: they hold from there on."""
        self.stock.restore(state["given"])
        self._dropped = [number in state["dropped"] for number in range(self.stock.inputs)]
        self._first_row, self._followed = state["row"], 0
        self._choices = np.empty(0, np.int32)
        self._lags = np.array(state["lags"], np.int64)
        self._unit = state["unit"]


def _carried_over(lags: list[int], unit: int, shares: list[int]) -> list[int]:
    """Return the lags in the unit of new shares; what an input without a share is due goes to the others."""
    new_unit = sum(shares)
    carried = [lag * new_unit // unit if share else 0 for lag, share in zip(lags, shares, strict=True)]
    excess = -sum(carried)
    spread = [excess * share // new_unit for share in shares]
    spread[shares.index(max(shares))] += excess - sum(spread)
    return [lag + more for lag, more in zip(carried, spread, strict=True)]
