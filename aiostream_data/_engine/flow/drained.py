"""Event that is set when every source of a run has read its last row."""

from __future__ import annotations

import asyncio


class Drained:
    """Event that is set when every source of a run has read its last row.

    When this event is set, the next epoch may start.
    """

    __slots__ = ("_event", "_is_over", "_reading")

    def __init__(self) -> None:
        self._reading = 0
        self._is_over = False
        self._event: asyncio.Event | None = None  # made when needed: most runs of a large mixture have no waiters

    def begin(self) -> None:
        self._reading += 1

    def end(self) -> None:
        self._reading -= 1
        if self._reading == 0:
            self.release()

    async def wait(self) -> None:
        if self._is_over:
            return
        if self._event is None:
            self._event = asyncio.Event()
        await self._event.wait()

    def release(self) -> None:
        """Wake all tasks that wait for this event, e.g. at the end of the run."""
        self._is_over = True
        if self._event is not None:
            self._event.set()
