"""Choose the input of each row of a mixture, by weights that can change during the run.

How this works. The mixture order is a list of choices, one input per row. This list depends only on the weights and the
row numbers, so chunk boundaries of the inputs never change it. The order computes choices in blocks of many rows. A
block of a nonrandom mixture keeps the row count of each input within one row of its share. A random block draws each
choice independently. When the weights change or an input is exhausted, the remaining choices of the block are
discarded. The lag of each input (rows due minus rows emitted) carries over to the next block, so no input gains or
loses rows. A step never crosses a block boundary. The state after any row therefore follows from the state before its
block and the block's choices. All steps of a block share this state, so a step costs the same with any number of
inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.errors import PlanError
from aiostream_data.transforms.interleave import FINISHED, NOTHING, MergeStep, WaitingStream
from aiostream_data.transforms.loaded_rows import Stock
from aiostream_data.transforms.randomness import draws_below
from aiostream_data.weights import Schedule, Stop, Vector, shares_of

BLOCK_ROWS = 16384
"""Number of rows in one block; the inputs for all rows of a block are chosen together."""


class MixBlock(NamedTuple):
    """State of a mixture before a block, with the choices of the block.

    Attributes:
        row: Number of the first row in the block.
        given: int64, number of rows emitted from each input before the block.
        lags: int64, rows due minus rows emitted for each input before the block, multiplied by ``unit``.
        shares: int64, rows due from each input per row of the block, multiplied by ``unit``.
        unit: Number of share units that correspond to one row.
        dropped: Exhausted inputs that the mixture has dropped.
        which: int32, number of the input of each row in the block.
    """

    row: int
    given: NDArray[np.int64]
    lags: NDArray[np.int64]
    shares: NDArray[np.int64]
    unit: int
    dropped: tuple[int, ...]
    which: NDArray[np.int32]


class MixPlace(NamedTuple):
    """State of a mixture before a step: its block, and the number of the block's rows before the step."""

    block: MixBlock
    rows: int

    @property
    def row(self) -> int:
        """Number of the first row in the step."""
        return self.block.row + self.rows


@dataclass(frozen=True, slots=True)
class MixStep(MergeStep):
    """Step of a mixture, with the state before the step."""

    place: MixPlace


class MixOrder:
    """Row order of a weighted mixture. Resumable; does no I/O.

    Between two weight changes, the row count of each input stays within 1 of the input's share. The mixture takes no
    rows from an input of weight 0.

    Args:
        schedule: Weights of the inputs for each row number of the mixture.
        stop: "first" ends the mixture when the next row is due from an exhausted input. "all" drops an exhausted input
            and continues with the other inputs in unchanged proportions.
        random_key: Key for random draws: the key and the row number determine the input of each row. None for no random
            draws.
    """

    def __init__(self, schedule: Schedule, stop: Stop = "first", random_key: np.uint64 | None = None) -> None:
        self.schedule = schedule
        self.stop = stop
        self.stock = Stock(len(schedule.names))
        self._random_key = random_key
        self._block = self._empty_block(0, self.stock.given, np.zeros(self.stock.inputs, np.int64), 1, ())
        self._followed = 0

    @property
    def row(self) -> int:
        """Number of the next row to emit."""
        return self._block.row + self._followed

    def set_weights(self, weights: Vector, from_row: int | None = None) -> int:
        """Replace the weights from a row number on, overriding the schedule.

        Return the number of the first row with the new weights.

        Args:
            weights: One weight per input.
            from_row: Number of a row that the mixture has not emitted yet; None means the next row.

        Raises:
            PlanError: The mixture has already emitted row ``from_row``.
        """
        row = self.row if from_row is None else from_row
        if row < self.row:
            raise PlanError(
                f"cannot change the weights from row {row} on: the next row is {self.row}. Pass a later row."
            )
        self.schedule = self.schedule.changed(row, weights).since(self.row)
        self._close_block()
        return row

    def load(self, slot: int, rows: int) -> None:
        """Set the number of rows in the next chunk of ``slot``.

        All rows of the previous chunk must have been emitted.
        """
        self.stock.load(slot, rows)

    def ended(self, slot: int) -> None:
        """Mark ``slot`` as ended. The mixture still emits rows of the slot that are already loaded."""
        self.stock.ended(slot)

    def rows_left(self, slot: int) -> int:
        """Return the number of rows in the slot's current chunk that the mixture has not emitted yet."""
        return self.stock.rows_left(slot)

    def upcoming(self, rows: int) -> NDArray[np.int32]:
        """Return the inputs of the next rows, as far as they are chosen, at most of ``rows`` rows."""
        return self._block.which[self._followed : self._followed + rows]

    def running_low(self, rows: int) -> NDArray[np.bool_]:
        """Return a mask of the inputs that have emitted half of their chunk, or run out of rows in the next ``rows``.

        Inputs that have not loaded a chunk do not count.
        """
        return self.stock.is_low(self._block.shares * (rows / self._block.unit))

    def advance(self, max_rows: int) -> MixStep:
        """Return the next step: at most ``max_rows`` rows from loaded chunks, within one block of choices.

        The rows of a returned step count as emitted. A step that ends with ``NOTHING`` can have any number of rows.

        Raises:
            PlanError: A user-defined weight function returned invalid weights.
        """
        if self._followed == len(self._block.which) and not self._next_block():
            return MixStep(self._block.which, np.empty(0, np.int64), FINISHED, self._place())
        place = self._place()
        choices = self.upcoming(max(0, max_rows))
        rows = self.stock.follow(choices)
        self._followed += len(rows)
        waiting = NOTHING if len(rows) == len(choices) else self._without_rows(int(choices[len(rows)]))
        return MixStep(choices[: len(rows)], rows, waiting, place)

    def _without_rows(self, slot: int) -> WaitingStream:
        """Decide how to continue when the next row is due from input ``slot`` but no row of this input is loaded."""
        if not self.stock.has_ended[slot]:
            return WaitingStream.rows(slot)
        if self.stop == "first":
            return FINISHED
        self._close_block(slot)
        return NOTHING

    def _next_block(self) -> bool:
        """Choose the inputs of the next block of rows. Return False if all inputs are exhausted or have weight 0."""
        self._close_block()
        last = self._block
        span = self.schedule.at(last.row)
        dropped = set(last.dropped)
        weights = tuple(0.0 if number in dropped else weight for number, weight in enumerate(span.weights))
        if not any(weights):
            return False
        shares, unit = _shares_of(weights)
        count = BLOCK_ROWS if span.until is None else min(BLOCK_ROWS, span.until - last.row)
        lags = np.array(_carried_over(last.lags.tolist(), last.unit, shares.tolist()), np.int64)
        which = self._chosen(last.row, shares, unit, lags, count)
        self._block = last._replace(lags=lags, shares=shares, unit=unit, which=which)
        return True

    def _chosen(
        self, row: int, shares: NDArray[np.int64], unit: int, lags: NDArray[np.int64], count: int
    ) -> NDArray[np.int32]:
        if self._random_key is None:
            return _native.deal_rows(shares, lags.copy(), count)
        drawn = draws_below(self._random_key, row, unit, count)
        return np.searchsorted(np.cumsum(shares), drawn, side="right").astype(np.int32)

    def _close_block(self, *dropped: int) -> None:
        """Discard the block's remaining choices. Drop inputs from the next block."""
        block, rows = self._block, self._followed
        counts = self._counts(block, rows)
        gone = tuple(sorted({*block.dropped, *dropped}))
        self._block = self._empty_block(
            block.row + rows, block.given + counts, self._lags_after(block, counts), block.unit, gone
        )
        self._followed = 0

    def _empty_block(
        self, row: int, given: NDArray[np.int64], lags: NDArray[np.int64], unit: int, dropped: tuple[int, ...]
    ) -> MixBlock:
        return MixBlock(row, given, lags, np.zeros(len(given), np.int64), unit, dropped, np.empty(0, np.int32))

    def _counts(self, block: MixBlock, rows: int) -> NDArray[np.int64]:
        """Return the number of rows of each input among the first rows of a block."""
        counts: NDArray[np.int64] = np.bincount(block.which[:rows], minlength=len(block.given))
        return counts

    def _lags_after(self, block: MixBlock, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lag (rows due minus rows emitted) of each input after ``counts`` rows of the inputs of a block."""
        if self._random_key is not None:
            return block.lags
        lags: NDArray[np.int64] = block.lags + block.shares * counts.sum() - counts * block.unit
        return lags

    def _place(self) -> MixPlace:
        return MixPlace(self._block, self._followed)

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data; see :meth:`state_at`."""
        return self.state_at(self._place(), 0)

    def state_at(self, place: MixPlace, rows: int) -> dict[str, Any]:
        """Return the position after the first ``rows`` rows of a step as JSON-compatible data.

        Any thread may call this method.

        In the state, ``given`` counts the rows emitted from each input; a resumed input starts at that row. In the
        state, ``lags`` are the rows due minus the rows emitted for each input, multiplied by ``unit``. The state does
        not contain the weight schedule; pass the schedule to the constructor when resuming.
        """
        block = place.block
        counts = self._counts(block, place.rows + rows)
        return {
            "row": place.row + rows,
            "given": (block.given + counts).tolist(),
            "dropped": list(block.dropped),
            "lags": self._lags_after(block, counts).tolist(),
            "unit": block.unit,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`, with no rows loaded.

        If the weights differ from those of the saved run, the new weights apply from that position on.
        """
        self.stock.restore(state["given"])
        lags = np.array(state["lags"], np.int64)
        self._block = self._empty_block(
            state["row"], self.stock.given, lags, state["unit"], tuple(sorted(state["dropped"]))
        )
        self._followed = 0


@lru_cache(maxsize=8)
def _shares_of(weights: Vector) -> tuple[NDArray[np.int64], int]:
    """Return the shares of weights, which are the same in most blocks, and their sum. Nobody may change the shares."""
    shares = shares_of(weights)
    return np.array(shares, np.int64), sum(shares)


def _carried_over(lags: list[int], unit: int, shares: list[int]) -> list[int]:
    """Convert lags to the unit of the new shares.

    Distribute the lags of inputs without a share among the other inputs.
    """
    new_unit = sum(shares)
    carried = [lag * new_unit // unit if share else 0 for lag, share in zip(lags, shares, strict=True)]
    excess = -sum(carried)
    spread = [excess * share // new_unit for share in shares]
    spread[shares.index(max(shares))] += excess - sum(spread)
    return [lag + more for lag, more in zip(carried, spread, strict=True)]
