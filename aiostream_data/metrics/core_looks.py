"""Sample how long user functions are on a core, and how long they wait for one.

How this works. Wall time cannot distinguish a sleeping function from one that gets no core. Linux counts for each
thread how long it was ready to run without a core. Reading this counter takes as long as a cheap hop, so only some
hops are sampled.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from aiostream_data.metrics.machine import CoreTime, thread_core_s

EVERY_S: Final = 0.01
"""Minimum seconds between the starts of two sampled hops."""

NO_LOOK: Final = CoreTime()


class CoreLooks:
    """Sampler that selects hops and measures their core time. Thread-safe; two concurrent hops may both be sampled."""

    def __init__(self) -> None:
        self._due = 0.0

    def begin(self) -> CoreTime | None:
        """Read the clocks of this thread before a hop. Return None if the hop is not sampled or clocks are missing."""
        now = perf_counter()
        if now < self._due:
            return None
        self._due = now + EVERY_S
        return thread_core_s()

    def end(self, began: CoreTime | None) -> CoreTime:
        """Return the core times of a hop that ends now. Must run on the thread that called :meth:`begin`."""
        now = None if began is None else thread_core_s()
        if began is None or now is None:
            return NO_LOOK
        return CoreTime(now.had_s - began.had_s, now.waited_s - began.waited_s)
