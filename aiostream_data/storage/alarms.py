"""Many calls at given times, of which nearly all are taken back before: by one timer of the event loop for all of them.

How this works. A timer of the loop that is set and taken back with every request costs more than to sign it. So one
stays, set to the first time that was wanted when it was set; when it goes off, what is due is called, and it is set to
the next time. Calls that were taken back meanwhile are not there any more.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Due(Protocol):
    """Something that is called at a time."""

    def is_due(self) -> None: ...


class Alarms:
    """For one event loop at a time."""

    def __init__(self) -> None:
        self._due: dict[Due, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    def set(self, after_s: float, what: Due) -> None:
        """Have ``what.is_due()`` called once after so many seconds, unless it is taken back."""
        loop = asyncio.get_running_loop()
        at = self._due[what] = loop.time() + after_s
        if self._timer is None or at < self._rings_at:
            self._arm(loop, at)

    def take_back(self, what: Due) -> None:
        """Do not call it any more. Idempotent."""
        self._due.pop(what, None)

    def left_s(self, what: Due) -> float:
        """Return the seconds until ``what.is_due()`` is called; 0 if it is not going to be."""
        at = self._due.get(what)
        return 0.0 if at is None else at - asyncio.get_running_loop().time()

    def close(self) -> None:
        """Call nothing any more. Idempotent."""
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
        now = max(loop.time(), self._rings_at)  # a loop's clock may be coarse
        try:
            for what in [what for what, at in self._due.items() if at <= now]:
                if self._due.pop(what, None) is not None:  # none of those before it has taken it back
                    what.is_due()
        finally:
            if self._due and self._timer is None:
                self._arm(loop, min(self._due.values()))
