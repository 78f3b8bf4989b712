"""An event that one thread announces once, and that others wait for: blocking, or awaiting on any loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from aiostream_data._engine.consumer.bridge import resolve


class Announced:
    """Happens once. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def happened(self) -> bool:
        """True once it was announced."""
        return self._event.is_set()

    def announce(self) -> None:
        """Set the event and wake all waiters. Idempotent."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until it has happened, or for some seconds."""
        self._event.wait(timeout_s)

    async def wait_async(self) -> None:
        """Await it on the caller's own loop."""
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
