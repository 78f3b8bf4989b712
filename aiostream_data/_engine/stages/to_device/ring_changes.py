"""Lets coroutines wait for a change of a device's slots, whichever thread makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TypeVar

from aiostream_data.device.ring_state import RingState

T = TypeVar("T")


class RingChanges:
    """Wakes coroutines of one loop. Loop thread only, but for what the ring calls."""

    def __init__(self, state: RingState) -> None:
        self._loop = asyncio.get_running_loop()
        self._state = state
        self._waiters: list[asyncio.Future[None]] = []

    async def until(
        self, attempt: Callable[[], T | None], waits: AbstractContextManager[object], look_again_s: float | None = None
    ) -> T:
        """Call ``attempt`` now and after every change until it gives something, and return that.

        Args:
            attempt: Never waits; what it raises is passed on.
            waits: Entered while there is something to wait for.
            look_again_s: Seconds after which it is called again although nobody told of a change.
        """
        changes, found = self._state.changes, attempt()
        if found is not None:
            return found
        with waits:
            while found is None:
                await self.past(changes, look_again_s)
                # Nothing is awaited behind a success, so that a cancellation cannot lose what was found.
                changes, found = self._state.changes, attempt()
        return found

    async def past(self, changes: int, look_again_s: float | None) -> None:
        """Wait until the ring has changed more often than so many times, or for ``look_again_s`` seconds at most."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        timer = None if look_again_s is None else self._loop.call_later(look_again_s, self._wake)
        try:
            # Behind the registration, or a change that another thread makes in between would be missed.
            if self._state.changes == changes:
                await waiter
        finally:
            if timer is not None:
                timer.cancel()

    def changed(self) -> None:
        """Wake all waiters. Called from any thread, with the ring's lock held."""
        if self._waiters:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


@contextmanager
def changes_of(state: RingState) -> Iterator[RingChanges]:
    """Yield what coroutines of the running loop wait for; it hears of changes for as long as the block takes."""
    changes = RingChanges(state)
    state.on_change = changes.changed
    try:
        yield changes
    finally:
        state.on_change = None
