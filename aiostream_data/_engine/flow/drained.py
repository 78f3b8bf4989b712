"""Event that is set when every source of a run has read its last row."""

from __future__ import annotations

import asyncio


class Drained:
    """Event that is set when every source of a run has read its last row.

    When this event is set, the next epoch may start.
    """

    def __init__(self) -> None:
        self._reading = 0
        self._event = asyncio.Event()

    def begin(self) -> None:
        self._reading += 1

    def end(self) -> None:
        self._reading -= 1
        if self._reading == 0:
            self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    def release(self) -> None:
        """Wake all tasks that wait for this event, e.g. at the end of the run."""
        self._event.set()
