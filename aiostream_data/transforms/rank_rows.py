"""Select this rank's rows from the global row order, with equal row counts on all ranks.

How this works. The global order is divided into *groups* of ``world_size`` rows, and rank r gets row r of each group. A
rank emits its row of a group only when the group is complete. All ranks therefore emit the same number of rows for the
same input, without communication. An incomplete last group is dropped, or is completed by repeating its first rows.
Until a group is complete, a rank keeps its own row of the group. Until this row arrives, the rank keeps the first rows
of the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.ranks.world import TAILS, Tail, too_few

FILLERS: Final = 8
"""Maximum number of distinct rows that are repeated for ranks without a row in an incomplete group."""


@dataclass(frozen=True, slots=True)
class Share:
    """Rows that a rank emits, and rows that the rank keeps for later.

    Row numbers count the kept rows first, then the incoming rows.

    Attributes:
        give: Numbers of the rows that this rank emits, int64, ascending.
        hold: Numbers of the rows to keep for later, int64, ascending. The rank can discard all rows that are in neither
            array.
    """

    give: NDArray[np.int64]
    hold: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LastShare:
    """Decision about the kept rows at the end of the stream.

    Attributes:
        give: Number of the kept row to emit, or None.
        is_filler: True if the emitted row repeats a row of another rank.
        left_out: Number of rows of the incomplete group that no rank emits. The number is equal on all ranks.
    """

    give: int | None
    is_filler: bool
    left_out: int


class RankOrder:
    """Selection of one rank's rows from the global row order. A run can resume with a different number of ranks.

    Args:
        rank: Number of this rank, counted from 0.
        world_size: Number of ranks.
        tail: "drop" drops an incomplete last group; "pad" and "repeat" complete this group by repeating its rows.
    """

    def __init__(self, rank: int, world_size: int, tail: Tail) -> None:
        if world_size < 1 or not 0 <= rank < world_size:
            raise PlanError(f"rank must be from 0 to {world_size - 1}, got {rank}")
        if tail not in TAILS:
            raise PlanError(f"tail must be one of {', '.join(map(repr, TAILS))}, got {tail!r}")
        self.rank = rank
        self.world_size = world_size
        self.tail: Tail = tail
        self._grouped = 0  # rows in complete groups since the start
        self._open = 0  # rows received of the incomplete group
        self._held = np.empty(0, np.int64)  # numbers within the group of the rows held back

    def push(self, count: int) -> Share:
        """Add ``count`` incoming rows.

        Return which of the kept and incoming rows to emit, and which to keep for later.
        """
        groups, rest = divmod(self._open + count, self.world_size)
        grouped = groups * self.world_size
        give = np.arange(self.rank, grouped, self.world_size)
        held = self._needed(rest)
        share = Share(self._numbers(give), self._numbers(grouped + held))
        self._grouped += grouped
        self._open, self._held = rest, held
        return share

    def finish(self) -> LastShare:
        """End the stream. Return which kept row to emit.

        Raises:
            RankError: The stream has fewer rows than ranks.
        """
        if not self._grouped:
            raise too_few(self._open, "row", self.world_size)
        if self.tail == "drop" or not self._open:
            return LastShare(None, False, self._open)
        is_filler = self.rank >= self._open
        wanted = self.rank % min(self._open, FILLERS) if is_filler else self.rank
        return LastShare(int(np.searchsorted(self._held, wanted)), is_filler, 0)

    def input_rows(self, given: int, came: int) -> int:
        """Return how many of the first ``came`` input rows correspond to the first ``given`` rows of each rank."""
        return min(given * self.world_size, came)

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data: the number of input rows in complete groups.

        A resumed input starts at this row number. The state is equal on all ranks and independent of the number of
        ranks.
        """
        return {"seen": self._grouped}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`, with no kept rows.

        The saved state can come from a run with a different number of ranks.
        """
        self._grouped = state["seen"]
        self._open, self._held = 0, np.empty(0, np.int64)

    def _needed(self, rest: int) -> NDArray[np.int64]:
        """Return the numbers of the rows in an incomplete group that this rank may emit later.

        The group has ``rest`` rows so far.
        """
        if rest > self.rank:
            return np.array([self.rank], np.int64)
        return np.arange(0 if self.tail == "drop" else min(rest, FILLERS), dtype=np.int64)

    def _numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert row numbers within the incomplete group to the numbers that :class:`Share` uses."""
        came = len(self._held) + rows - self._open
        return np.where(rows < self._open, np.searchsorted(self._held, rows), came)


@dataclass(frozen=True, slots=True)
class BatchShare:
    """Rows of one rank in a batch that is divided among all ranks.

    Attributes:
        rows: Numbers of this rank's rows within the batch, int64.
        ends_in_filler: True if the last row repeats a row of another rank.
    """

    rows: NDArray[np.int64]
    ends_in_filler: bool


def share_of_batch(count: int, rank: int, world_size: int, tail: Tail) -> BatchShare:
    """Divide the ``count`` rows of a batch among all ranks.

    Return the rows of this rank; all ranks get the same number of rows.
    """
    order = RankOrder(rank, world_size, tail)
    order.restore({"seen": world_size})  # avoids the RankError of finish() for a batch with fewer rows than ranks
    share, last = order.push(count), order.finish()
    if last.give is None:
        return BatchShare(share.give, False)
    return BatchShare(np.append(share.give, share.hold[last.give]), last.is_filler)
