"""Detect whether user functions hold the GIL.

The event loop's thread sleeps briefly, which releases the GIL. If another thread is waiting for the GIL, that thread
takes it. The loop's thread must then block to get the GIL back, which is a second voluntary context switch. If the
functions release the GIL, the loop's thread continues at once. Other programs that use the CPU do not affect this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from aiostream_data.metrics.machine import thread_switches

SLEEP_S: Final = 5e-4
"""Duration of the sleep in seconds: enough for a waiting thread to wake up, short enough for an event loop."""

LOOK_AFTER_S: Final = 0.003
"""Seconds from the start of a hop to the probe, so that its thread is in the user function."""

FIRST_LOOKS: Final = 64
"""Number of probes made at the interval ``SOON_S``."""

SOON_S: Final = 0.025
"""Seconds between the first ``FIRST_LOOKS`` probes."""

LATER_S: Final = 0.5
"""Seconds between probes after the first ``FIRST_LOOKS`` probes."""


class GilProbe:
    """Probe for threads that wait for the GIL. Not thread-safe: use only on the event loop's thread.

    Args:
        at_work: Returns the number of threads that are running a hop.

    Attributes:
        looks: Number of probes.
        taken: Number of probes in which another thread took the GIL.
    """

    def __init__(self, at_work: Callable[[], int]) -> None:
        self._at_work = at_work
        self.looks = 0
        self.taken = 0
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """True if the interval since the last probe has passed."""
        return time.perf_counter() >= self._next

    def look(self) -> None:
        """Probe once, if a probe is due and a hop is running."""
        if not self.is_due or not self._at_work():
            return
        before = thread_switches().yields
        time.sleep(SLEEP_S)
        was_taken = thread_switches().yields - before > 1
        self.taken += was_taken
        self.looks += was_taken or self._at_work() > 0  # if no thread is at work, the hop may have ended early
        self._next = time.perf_counter() + (SOON_S if self.looks < FIRST_LOOKS else LATER_S)
