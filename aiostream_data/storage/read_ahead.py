"""Adapt the number of concurrent range requests for one object. The number grows while the reader waits for bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST: Final = 2
"""Minimum number of ranges: one that is being processed and one in flight."""

MOST: Final = 64
"""Maximum number of ranges in flight for all open objects together."""

MEMORY_SHARE: Final = 3 / 8
"""Fraction of the memory limit for ranges in flight. The rest is free for ranges that the output order needs first."""

PATIENCE: Final = 32
"""Number of consecutive ranges that must arrive in time before read-ahead shrinks by one range."""


@dataclass(slots=True)
class ReadAhead:
    """Read-ahead controller of one object. Each range that arrives late increases the number of concurrent ranges.

    Until a range arrives in time, every late range doubles the number. So a few round trips are sufficient to use the
    full bandwidth. Read-ahead is small for near stores and large for distant stores. Read-ahead also stays small if
    training is slower than the network.

    Attributes:
        ranges: Recommended number of concurrent ranges.
    """

    ranges: int = LEAST
    _in_time: int = 0
    _doubles: bool = True

    def took(self, most: int, *, was_there: bool) -> None:
        """Record whether a range had arrived when the reader needed the range.

        Args:
            most: Maximum number of concurrent ranges; see :func:`most_ahead`.
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
    """Return the maximum number of concurrent ranges per object if ``open_at_once`` objects are read concurrently."""
    held = int(memory_limit * MEMORY_SHARE) // (open_at_once * range_nbytes)
    return max(LEAST, min(MOST // open_at_once, held))
