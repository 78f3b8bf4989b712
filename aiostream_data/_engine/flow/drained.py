"""The moment when every source of a run has read its last row."""

from __future__ import annotations

import asyncio


class Drained:
    """Tells when every source of a run has read its last row, so that the next epoch may begin."""

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
        """Release all waiters, as when the run is over."""
        self._event.set()
