"""Return unused memory of malloc to the operating system when it is large relative to the memory limit.

Threads free arrays that other threads allocated. Therefore malloc keeps freed memory in one arena per thread, up to
several times the memory in use. Checking how much memory malloc keeps is cheap, so the check runs periodically.
Trimming (returning memory) costs milliseconds and causes page faults later, so it is done only above a limit.
"""

from __future__ import annotations

from time import monotonic, perf_counter
from typing import Final

from aiostream_data.metrics.allocator import allocator_state, trim

KEPT_SHARE: Final = 0.25
"""Fraction (1/4) of the memory limit up to which malloc may keep freed memory."""

LEAST_NBYTES: Final = 16 << 20
"""Number of bytes of unused memory that malloc may always keep."""

LOOK_S: Final = 0.5
"""Minimum number of seconds between two checks of malloc's kept memory."""

COST_SHARE: Final = 0.005
"""Maximum fraction of time spent on checks.

A check can be slow, because malloc counts its free memory piece by piece.
"""


def kept_nbytes(memory_limit: int) -> int:
    """Return how many bytes of freed memory malloc may keep in a process with a memory limit in bytes."""
    return max(LEAST_NBYTES, int(memory_limit * KEPT_SHARE))


class Trimmer:
    """Object that returns malloc's unused memory to the operating system for one loader. ``memory_limit`` is in bytes.

    Attributes:
        trimmed: Number of times that memory was returned to the operating system.
    """

    def __init__(self, memory_limit: int) -> None:
        self._most = kept_nbytes(memory_limit)
        self._since = monotonic()
        self._pause_s = LOOK_S
        self._resident = 0  # resident bytes after the last trim; trim again only after growth
        self.trimmed = 0

    def is_due(self) -> bool:
        """Return True if the next check of malloc's memory is due. Restart the interval if a check is due."""
        now = monotonic()
        if now - self._since < self._pause_s:
            return False
        self._since = now
        return True

    def look(self) -> None:
        """Return memory to the operating system if malloc keeps too much.

        Do not call this method on the event loop, because returning memory can take milliseconds.
        """
        started = perf_counter()
        self._look()
        self._pause_s = max(LOOK_S, (perf_counter() - started) / COST_SHARE)

    def _look(self) -> None:
        found = allocator_state()
        if found is None or found.kept < self._most or found.resident < self._resident + self._most // 4:
            return
        trim()
        self.trimmed += 1
        after = allocator_state()
        self._resident = after.resident if after is not None else found.resident
