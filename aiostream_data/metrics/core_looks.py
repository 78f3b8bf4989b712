"""Measure for how long functions were on a core and waited for one, in some of the hops that call them.

How this works. A function that sleeps and one that gets no core look alike on a clock. Linux counts for each thread how
long it was ready to run and had no core. To read that takes as long as a cheap hop, so one hop in a while is enough.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from aiostream_data.metrics.machine import CoreTime, thread_core_s

EVERY_S: Final = 0.01
"""Seconds between the beginnings of two hops that are looked at."""

NO_LOOK: Final = CoreTime()


class CoreLooks:
    """Decides which hops are looked at. Any thread; two at the same moment may both be."""

    def __init__(self) -> None:
        self._due = 0.0

    def begin(self) -> CoreTime | None:
        """Read the clocks of this thread before a hop; None where it is not its turn, or where nothing tells."""
        now = perf_counter()
        if now < self._due:
            return None
        self._due = now + EVERY_S
        return thread_core_s()

    def end(self, began: CoreTime | None) -> CoreTime:
        """Return what was seen of a hop that ends now, on the thread on which it began."""
        now = None if began is None else thread_core_s()
        if began is None or now is None:
            return NO_LOOK
        return CoreTime(now.had_s - began.had_s, now.waited_s - began.waited_s)
