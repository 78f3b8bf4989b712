"""Decide which rows of the one global order are this rank's, and what becomes of the last ones.

How this works. The rows come in *groups* of as many rows as there are ranks, and rank r gets row r of every
group. A row is given only when its group is complete, so that every rank has given as many rows as all
others when it has seen the same input, and ranks need not ask each other at the end: the last group, where it
is incomplete, is left out, or filled up with its first rows again. Until then the rows of the group that might
still be needed are held back: the rank's own, or the first ones while its own has not come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.ranks.world import TAILS, Tail, too_few

FILLERS: Final = 8
"""So many rows of an incomplete group, at most, are given again, in turn, to the ranks that it has no rows for."""


@dataclass(frozen=True, slots=True)
class Share:
    """What becomes of rows. Rows are numbered: those held back first, then those that came.

    Attributes:
        give: int64, ascending: this rank's rows, to be handed on now.
        hold: int64, ascending: rows to hold back. All others are done with.
    """

    give: NDArray[np.int64]
    hold: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LastShare:
    """What becomes of the rows held back when no row follows.

    Attributes:
        give: Which of them is handed on, or None.
        is_filler: Another rank gives the same row as its own.
        left_out: Rows of the incomplete group that no rank gives; the same number on every rank.
    """

    give: int | None
    is_filler: bool
    left_out: int


class RankOrder:
    """Every rank's rows out of one global order; resumable, also by another number of ranks.

    Args:
        rank, world_size: Which of how many.
        tail: "drop" leaves an incomplete last group out; "pad" and "repeat" fill it up with its own rows.
    """

    def __init__(self, rank: int, world_size: int, tail: Tail) -> None:
        if world_size < 1 or not 0 <= rank < world_size:
            raise PlanError(f"rank must be from 0 to {world_size - 1}, got {rank}")
        if tail not in TAILS:
            raise PlanError(f"tail must be one of {', '.join(map(repr, TAILS))}, got {tail!r}")
        self.rank = rank
        self.world_size = world_size
        self.tail: Tail = tail
        self._grouped = 0  # rows in complete groups, since the beginning
        self._open = 0  # rows that have come of the incomplete group
        self._held = np.empty(0, np.int64)  # their numbers in the group, of those held back

    def push(self, count: int) -> Share:
        """Return what becomes of the rows held back and of ``count`` incoming ones."""
        groups, rest = divmod(self._open + count, self.world_size)
        grouped = groups * self.world_size
        give = np.arange(self.rank, grouped, self.world_size)
        held = self._needed(rest)
        share = Share(self._numbers(give), self._numbers(grouped + held))
        self._grouped += grouped
        self._open, self._held = rest, held
        return share

    def finish(self) -> LastShare:
        """Return what becomes of the rows held back, since no row follows.

        Raises:
            RankError: There were fewer rows than ranks, in all.
        """
        if not self._grouped:
            raise too_few(self._open, "row", self.world_size)
        if self.tail == "drop" or not self._open:
            return LastShare(None, False, self._open)
        is_filler = self.rank >= self._open
        wanted = self.rank % min(self._open, FILLERS) if is_filler else self.rank
        return LastShare(int(np.searchsorted(self._held, wanted)), is_filler, 0)

    def input_rows(self, given: int, came: int) -> int:
        """Return how many of ``came`` rows of the input the first ``given`` rows of every rank stand for."""
        return min(given * self.world_size, came)

    def state(self) -> dict[str, Any]:
        """Return the position as plain data: rows in complete groups, from where on the input is to be read.

        It is the same on every rank, and says nothing of their number.
        """
        return {"seen": self._grouped}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position, with nothing held back; it may be one of another number of ranks."""
        self._grouped = state["seen"]
        self._open, self._held = 0, np.empty(0, np.int64)

    def _needed(self, rest: int) -> NDArray[np.int64]:
        """Return which rows of an incomplete group, of which ``rest`` have come, this rank may have to give."""
        if rest > self.rank:
            return np.array([self.rank], np.int64)
        return np.arange(0 if self.tail == "drop" else min(rest, FILLERS), dtype=np.int64)

    def _numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows that are counted from the beginning of the incomplete group."""
        came = len(self._held) + rows - self._open
        return np.where(rows < self._open, np.searchsorted(self._held, rows), came)


@dataclass(frozen=True, slots=True)
class BatchShare:
    """A rank's rows of a batch that all ranks share.

    Attributes:
        rows: int64, their numbers in the batch.
        ends_in_filler: The last of them is another rank's row again.
    """

    rows: NDArray[np.int64]
    ends_in_filler: bool


def share_of_batch(count: int, rank: int, world_size: int, tail: Tail) -> BatchShare:
    """Return which of the ``count`` rows of a batch a rank gets: as many as every other rank."""
    order = RankOrder(rank, world_size, tail)
    order.restore({"seen": world_size})  # a small batch is no small data set
    share, last = order.push(count), order.finish()
    if last.give is None:
        return BatchShare(share.give, False)
    return BatchShare(np.append(share.give, share.hold[last.give]), last.is_filler)
