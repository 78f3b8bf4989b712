"""Return malloc's unused memory to the system if it is large relative to the memory limit.

Threads free arrays that other threads allocated. malloc then keeps freed memory in one arena per thread, up to several
times the memory in use. Checking is cheap and done periodically. Trimming costs milliseconds and later page faults, so
it is done only if the kept memory exceeds a limit.
"""

from __future__ import annotations

from time import monotonic, perf_counter
from typing import Final

from aiostream_data.metrics.allocator import allocator_state, trim

KEPT_SHARE: Final = 0.5
"""malloc may keep freed memory up to this fraction (1/2) of the memory limit."""

LEAST_NBYTES: Final = 16 << 20
"""Kept memory up to this size in bytes is never trimmed."""

LOOK_S: Final = 0.5
"""Minimum number of seconds between two checks."""

COST_SHARE: Final = 0.005
"""Maximum fraction of time spent on checks. malloc counts free memory piece by piece, so a check can be slow."""


class Trimmer:
    """Trims malloc's free memory in this process, for one loader with a memory limit in bytes.

    Attributes:
        trimmed: Number of trims so far.
    """

    def __init__(self, memory_limit: int) -> None:
        self._most = max(LEAST_NBYTES, int(memory_limit * KEPT_SHARE))
        self._since = monotonic()
        self._pause_s = LOOK_S
        self._resident = 0  # resident bytes after the last trim; trim again only after growth
        self.trimmed = 0

    def is_due(self) -> bool:
        """Return True if a check is due. If so, restart the interval."""
        now = monotonic()
        if now - self._since < self._pause_s:
            return False
        self._since = now
        return True

    def look(self) -> None:
        """Trim if malloc keeps too much. Call off the event loop, because a trim can take milliseconds."""
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
