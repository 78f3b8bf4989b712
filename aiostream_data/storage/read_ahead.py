"""How many ranges of one object to have on their way at once: more while whoever reads has to wait for bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST: Final = 2
"""One that is read, and one that comes meanwhile."""

MOST: Final = 64
"""Ranges on their way of all objects that are open together; memory allows for less as a rule."""

PATIENCE: Final = 32
"""So many ranges in a row that were there in time, and one fewer is asked for ahead."""


@dataclass(slots=True)
class ReadAhead:
    """Found by what happens: a range that was not there when it was wanted asks for another one beside it.

    Until the first range is there in time, each that was not doubles what is asked for: a long line is filled in a few
    round trips. So a near store is asked for little ahead, one at the end of a long line for as much as fills the line,
    and training that is slower than the line for no more than it takes.

    Attributes:
        open_at_once: Objects that are read at the same time.
        ranges: Ranges to have on their way now.
    """

    open_at_once: int = 1
    ranges: int = LEAST
    _in_time: int = 0
    _doubles: bool = True

    def took(self, *, was_there: bool) -> None:
        """Take note of a range that was wanted, and whether it was there."""
        if not was_there:
            self._in_time = 0
            more = self.ranges if self._doubles else 1
            self.ranges = min(max(LEAST, MOST // self.open_at_once), self.ranges + more)
            return
        self._doubles = False
        self._in_time += 1
        if self._in_time == PATIENCE:
            self._in_time = 0
            self.ranges = max(LEAST, self.ranges - 1)
