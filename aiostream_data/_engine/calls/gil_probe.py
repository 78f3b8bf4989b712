"""Detect whether user functions hold Python's global interpreter lock (GIL).

For each probe, the event loop's thread sleeps briefly, which releases the GIL. If another thread is waiting for the
GIL, the waiting thread takes the GIL during this sleep. The event loop's thread must then block to get the GIL back,
which adds a second voluntary context switch. If the user functions release the GIL, the event loop's thread continues
immediately after its sleep. Other programs that use the CPU do not affect the result of a probe.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from aiostream_data.metrics.machine import thread_switches

SLEEP_S: Final = 5e-4
"""Duration of the sleep in seconds: long enough for a waiting thread to wake up, too short to delay the event loop."""

LOOK_AFTER_S: Final = 0.003
"""Seconds between the start of a hop (one unit of work) and the probe, so that the user function is already running."""

FIRST_LOOKS: Final = 64
"""Number of initial probes, made every ``SOON_S`` seconds."""

SOON_S: Final = 0.025
"""Seconds between two of the first ``FIRST_LOOKS`` probes."""

LATER_S: Final = 0.5
"""Seconds between two probes after the first ``FIRST_LOOKS`` probes."""


class GilProbe:
    """Detector for threads that wait for the GIL.

    This class is not thread-safe: use it only on the event loop's thread.

    Args:
        at_work: Function that returns the number of threads that run user functions.

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
        """True if enough time has passed since the last probe."""
        return time.perf_counter() >= self._next

    def look(self) -> None:
        """Probe once if a probe is due and a user function is running."""
        if not self.is_due or not self._at_work():
            return
        before = thread_switches().yields
        time.sleep(SLEEP_S)
        was_taken = thread_switches().yields - before > 1
        self.taken += was_taken
        self.looks += was_taken or self._at_work() > 0  # if no thread is at work, the hop may have ended early
        self._next = time.perf_counter() + (SOON_S if self.looks < FIRST_LOOKS else LATER_S)
