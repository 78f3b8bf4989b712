"""Adapt the number of groups of small shards that are read ahead, and bound the ranges of large shards by memory.

The module :mod:`.read_window` adapts the number of ranges of large shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST: Final = 2
"""Minimum number of ranges or groups: one that is being processed and one in flight."""

MOST: Final = 64
"""Maximum number of ranges in flight for all open objects together."""

MEMORY_SHARE: Final = 3 / 8
"""Fraction of the memory limit for ranges in flight. The rest is free for ranges that the output order needs first."""

SHARERS_SHARE: Final = 3 / 16
"""The same fraction if several sources share the memory limit. Rows of each source wait for their turn."""

PATIENCE: Final = 32
"""Number of consecutive ranges or groups that must arrive in time before read-ahead shrinks."""


@dataclass(slots=True)
class ReadAhead:
    """Read-ahead controller of the groups of one source. Each group that arrives late increases the number of groups.

    Until a group arrives in time, every late group doubles the number. So a few round trips are sufficient to use the
    full bandwidth. Read-ahead is small for near stores and large for distant stores. Read-ahead also stays small if
    training is slower than the network.

    Attributes:
        reads: Recommended number of concurrent reads. Each read is one group.
    """

    reads: int = LEAST
    _in_time: int = 0
    _doubles: bool = True

    def took(self, most: int, *, was_there: bool) -> None:
        """Record whether a group had arrived when the reader needed the group.

        Args:
            most: Maximum number of concurrent groups.
        """
        if not was_there:
            self._in_time = 0
            more = self.reads if self._doubles else 1
            self.reads = min(most, self.reads + more)
            return
        self._doubles = False
        self._in_time += 1
        if self._in_time == PATIENCE:
            self._in_time = 0
            self.reads = max(LEAST, self.reads - 1)


def most_ahead(memory_limit: int, sharers: int, range_nbytes: int) -> int:
    """Return the maximum number of concurrent ranges of one source if ``sharers`` sources share the memory limit."""
    share = MEMORY_SHARE if sharers == 1 else SHARERS_SHARE
    return max(LEAST, min(MOST, int(memory_limit * share) // (sharers * range_nbytes)))
