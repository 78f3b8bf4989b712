"""How many ranges of one object to request at once: more while the reader waits for bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST: Final = 2
"""One that is read, and one that comes meanwhile."""

MOST: Final = 64
"""Ranges on their way of all objects that are open together, ..."""

MEMORY_SHARE: Final = 3 / 8
"""... and the part of the memory limit that they may take: the order may have to wait for others, which need room."""

PATIENCE: Final = 32
"""So many ranges in a row that were there in time, and one fewer is asked for ahead."""


@dataclass(slots=True)
class ReadAhead:
    """Found by what happens: a range that was not there when it was wanted asks for another one beside it.

    Until the first range is there in time, each that was not doubles what is asked for: a long line is filled in a few
    round trips. So a near store is asked for little ahead, one at the end of a long line for as much as fills the line,
    and training that is slower than the line for no more than it takes.

    Attributes:
        ranges: Ranges to have on their way now.
    """

    ranges: int = LEAST
    _in_time: int = 0
    _doubles: bool = True

    def took(self, most: int, *, was_there: bool) -> None:
        """Record a range that was wanted, and whether it was there.

        Args:
            most: Ranges that may be on their way; see :func:`most_ahead`.
        """
        if not was_there:
            self._in_time = 0
            more = self.ranges if self._doubles else 1
            self.ranges = min(most, self.ranges + more)
            return
        self._doubles = False
        self._in_time += 1
        if self._in_time == PATIENCE:
            self._in_time = 0
            self.ranges = max(LEAST, self.ranges - 1)


def most_ahead(memory_limit: int, open_at_once: int, range_nbytes: int) -> int:
    """Return how many ranges of each object may be on their way at once.

    Args:
        memory_limit: In bytes.
        open_at_once: Objects that are read at the same time.
        range_nbytes: Size of a range.
    """
    held = int(memory_limit * MEMORY_SHARE) // (open_at_once * range_nbytes)
    return max(LEAST, min(MOST // open_at_once, held))
