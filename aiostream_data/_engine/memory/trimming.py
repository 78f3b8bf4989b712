"""Give back what malloc keeps of freed memory, when that is much beside the memory limit.

Arrays that functions return are freed by other threads than those that made them, and a process then keeps up to
several times what is alive, in an arena for each thread. Looking is cheap and done now and then; giving back costs
milliseconds, and page faults later, and is done only where it is needed to stay within what was declared.
"""

from __future__ import annotations

from time import monotonic, perf_counter
from typing import Final

from aiostream_data.metrics.allocator import allocator_state, trim

KEPT_SHARE: Final = 0.5
"""Freed memory may stay with the process up to this fraction (1/2) of the memory limit."""

LEAST_NBYTES: Final = 16 << 20
"""Less than this is never worth it."""

LOOK_S: Final = 0.5
"""Seconds between two looks, ..."""

COST_SHARE: Final = 0.005
"""... or more, so that they take no more than this part of the time: malloc counts what is free piece by piece."""


class Trimmer:
    """Looks after one process, for one loader under a memory limit in bytes.

    Attributes:
        trimmed: How often memory was given back.
    """

    def __init__(self, memory_limit: int) -> None:
        self._most = max(LEAST_NBYTES, int(memory_limit * KEPT_SHARE))
        self._since = monotonic()
        self._pause_s = LOOK_S
        self._resident = 0  # after the last time: what does not grow again is not malloc's to give back
        self.trimmed = 0

    def is_due(self) -> bool:
        """Return True if it is time to look again, and begin to count anew if it is."""
        now = monotonic()
        if now - self._since < self._pause_s:
            return False
        self._since = now
        return True

    def look(self) -> None:
        """Give memory back if too much is kept. Not on the loop: it may take milliseconds."""
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
