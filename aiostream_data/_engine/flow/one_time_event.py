"""One-shot event set by one thread.

Other threads can block until the event is set, and coroutines on any event loop can await the event.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from aiostream_data._engine.consumer.bridge import resolve


class Announced:
    """One-shot event. Any thread may call the methods of this event."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def happened(self) -> bool:
        """True if the event is set."""
        return self._event.is_set()

    def announce(self) -> None:
        """Set the event and wake all waiters. Idempotent."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the event is set, for at most ``timeout_s`` seconds."""
        self._event.wait(timeout_s)

    async def wait_async(self) -> None:
        """Await the event on the caller's event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # the caller's loop is closed
                loop.call_soon_threadsafe(resolve, future)

        with self._lock:
            if self._event.is_set():
                return
            self._callbacks.append(wake)
        await future
