"""Tell the log when the consumer has waited too long, and for what: once for every such wait.

It lives on a thread of its own, since what it watches may be the event loop that is blocked. That thread wakes
once in a while, at most as often as a stall can happen: whoever does not wait now can only be stalled a whole
``stall_after_s`` later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Final

LOGGER: Final = "aiostream_data"


class Watchdog:
    """Watches one consumer, from :meth:`start` to :meth:`stop`.

    Args:
        stall_after_s: How long it may wait.
        waits_since: Returns ``perf_counter()`` when the consumer began to wait; None while it does not.
        describe: Returns what to tell of a stall.
    """

    def __init__(
        self, stall_after_s: float, waits_since: Callable[[], float | None], describe: Callable[[], str]
    ) -> None:
        self._stall_after_s = stall_after_s
        self._waits_since = waits_since
        self._describe = describe
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="aiostream-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the thread, and wait for that at most so long. Idempotent."""
        self._ended.set()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _watch(self) -> None:
        told: float | None = None
        pause_s = self._stall_after_s
        while not self._ended.wait(pause_s):
            since = self._waits_since()
            waited_s = 0.0 if since is None or since == told else perf_counter() - since
            if waited_s >= self._stall_after_s:
                told, waited_s = since, 0.0
                logging.getLogger(LOGGER).warning(
                    "no element for %.4g s (stall_after=%.4g)\n%s",
                    perf_counter() - (since or 0.0),
                    self._stall_after_s,
                    self._describe(),
                )
            pause_s = self._stall_after_s - waited_s
