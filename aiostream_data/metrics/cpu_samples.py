"""Sample how long user functions run on a CPU core, and how long they wait for a core.

How this works. Wall time cannot distinguish a sleeping function from a function that waits for a core. For each thread,
Linux measures how long the thread was ready to run but had no core. Measuring this time takes as long as a cheap hop
(one call on a worker thread), so only some hops are sampled.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from aiostream_data.metrics.machine import CoreTime, thread_core_s

EVERY_S: Final = 0.01
"""Minimum time in seconds between the starts of two sampled hops (calls on worker threads)."""

NO_LOOK: Final = CoreTime()


class CoreLooks:
    """Sampler that selects hops (calls on worker threads) and measures their CPU core time.

    The sampler is thread-safe; two concurrent hops may both be sampled.
    """

    def __init__(self) -> None:
        self._due = 0.0

    def begin(self) -> CoreTime | None:
        """Read the CPU clocks of this thread before a hop (one call on a worker thread).

        Return None if the hop is not sampled, or if the system does not provide these clocks.
        """
        now = perf_counter()
        if now < self._due:
            return None
        self._due = now + EVERY_S
        return thread_core_s()

    def end(self, began: CoreTime | None) -> CoreTime:
        """Return the time that a hop (one call on a worker thread) ran on a core and waited for a core.

        Call this method on the thread that called :meth:`begin`.
        """
        now = None if began is None else thread_core_s()
        if began is None or now is None:
            return NO_LOOK
        return CoreTime(now.had_s - began.had_s, now.waited_s - began.waited_s)
