"""Find out whether functions hold the GIL: whether another thread takes it as soon as this one lets it go.

How this works. The event loop's thread sleeps for a moment, and so lets the GIL go. Where a thread has waited for it,
that one has it now, and the loop's thread has to wait: it leaves its core a second time. Where functions release the
GIL, it finds the GIL as it left it. That holds however many other programs want the cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from aiostream_data.metrics.machine import thread_switches

SLEEP_S: Final = 5e-4
"""Long enough for a thread that waits for the GIL to wake up, and short for an event loop."""

LOOK_AFTER_S: Final = 0.003
"""How long a hop should have run: its thread is in the function then."""

FIRST_LOOKS: Final = 64
"""Looks of the first seconds, ..."""

SOON_S: Final = 0.025
LATER_S: Final = 0.5
"""... and seconds between two of them, and between two later ones."""


class GilProbe:
    """Looks for a thread that waits for the GIL. Loop thread only.

    Args:
        at_work: Returns how many threads are in a hop.

    Attributes:
        looks: How often it has looked.
        taken: How often the GIL was taken.
    """

    def __init__(self, at_work: Callable[[], int]) -> None:
        self._at_work = at_work
        self.looks = 0
        self.taken = 0
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last look was long enough ago."""
        return time.perf_counter() >= self._next

    def look(self) -> None:
        """Look, unless that was done just before."""
        if not self.is_due or not self._at_work():
            return
        before = thread_switches().yields
        time.sleep(SLEEP_S)
        was_taken = thread_switches().yields - before > 1
        self.taken += was_taken
        self.looks += was_taken or self._at_work() > 0  # else the hop may have ended before
        self._next = time.perf_counter() + (SOON_S if self.looks < FIRST_LOOKS else LATER_S)
