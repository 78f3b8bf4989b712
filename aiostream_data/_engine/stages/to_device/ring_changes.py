"""Let coroutines wait until any thread changes the state of a device's memory slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TypeVar

from aiostream_data.device.ring_state import RingState

T = TypeVar("T")


class RingChanges:
    """Notifier that wakes coroutines of one event loop.

    Use this class only on the event loop's thread, except :meth:`changed`.
    """

    def __init__(self, state: RingState) -> None:
        self._loop = asyncio.get_running_loop()
        self._state = state
        self._waiters: list[asyncio.Future[None]] = []

    async def until(
        self, attempt: Callable[[], T | None], waits: AbstractContextManager[object], look_again_s: float | None = None
    ) -> T:
        """Call ``attempt`` immediately and after every change, until it returns a result other than None.

        Return that result.

        Args:
            attempt: Function to call; this function must not block. Exceptions of ``attempt`` propagate.
            waits: Context manager that is active while this method waits.
            look_again_s: Maximum time between two attempts in seconds, even without a change.
        """
        changes, found = self._state.changes, attempt()
        if found is not None:
            return found
        with waits:
            while found is None:
                await self.past(changes, look_again_s)
                # No await after a successful attempt: a cancellation must not lose the result.
                changes, found = self._state.changes, attempt()
        return found

    async def past(self, changes: int, look_again_s: float | None) -> None:
        """Wait until the ring's change counter differs from ``changes``, or for at most ``look_again_s`` seconds."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        timer = None if look_again_s is None else self._loop.call_later(look_again_s, self._wake)
        try:
            # Check after registering the waiter: otherwise a change by another thread could be missed.
            if self._state.changes == changes:
                await waiter
        finally:
            if timer is not None:
                timer.cancel()

    def changed(self) -> None:
        """Wake all waiters. Any thread that holds the ring's lock may call this method."""
        if self._waiters:
            with suppress(RuntimeError):  # the loop is closed, so no coroutine waits
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


@contextmanager
def changes_of(state: RingState) -> Iterator[RingChanges]:
    """Yield a :class:`RingChanges` for the running event loop, registered with the slot ring until the block ends."""
    changes = RingChanges(state)
    state.on_change = changes.changed
    try:
        yield changes
    finally:
        state.on_change = None
