"""Run many scheduled callbacks with one event-loop timer. Nearly all callbacks are cancelled before they are due.

Setting and cancelling an event-loop timer for every request costs more than signing the request. So a single timer is
set for the earliest callback. When the timer fires, :class:`Alarms` runs all due callbacks and sets the timer for the
next callback. Cancelling a callback removes it from the table and leaves the timer unchanged.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Due(Protocol):
    """Object with a callback that :class:`Alarms` runs."""

    def is_due(self) -> None: ...


class Alarms:
    """Scheduler for callbacks of one event loop, which share a single timer."""

    def __init__(self) -> None:
        self._due: dict[Due, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    def set(self, after_s: float, what: Due) -> None:
        """Schedule one call of ``what.is_due()`` after ``after_s`` seconds."""
        loop = asyncio.get_running_loop()
        at = self._due[what] = loop.time() + after_s
        if self._timer is None or at < self._rings_at:
            self._arm(loop, at)

    def take_back(self, what: Due) -> None:
        """Cancel the scheduled call of ``what.is_due()``. Idempotent."""
        self._due.pop(what, None)

    def left_s(self, what: Due) -> float:
        """Return the seconds until ``what.is_due()`` is called, or 0 if no call is scheduled."""
        at = self._due.get(what)
        return 0.0 if at is None else at - asyncio.get_running_loop().time()

    def close(self) -> None:
        """Cancel all scheduled calls. Idempotent."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = at
        self._timer = loop.call_at(at, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = max(loop.time(), self._rings_at)  # the clock of an event loop may be coarse
        try:
            for what in [what for what, at in self._due.items() if at <= now]:
                if self._due.pop(what, None) is not None:  # an earlier callback may have cancelled it
                    what.is_due()
        finally:
            if self._due and self._timer is None:
                self._arm(loop, min(self._due.values()))
