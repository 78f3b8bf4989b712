"""Watchdog thread that raises an alarm, at most once per element, when the consumer waits too long for an element.

The watchdog has its own thread because the event loop itself may be blocked. The watchdog sleeps until the earliest
time at which an alarm can be due.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, NamedTuple

from aiostream_data._engine.consumer.bridge import Waiting

LOGGER: Final = "aiostream_data"


class Alarm(NamedTuple):
    """Alarm after a wait of ``after_s`` seconds: the watchdog calls ``go_off`` with the actual duration of the wait."""

    after_s: float
    go_off: Callable[[float], None]


class Watchdog:
    """Thread that monitors how long one consumer waits, from :meth:`start` to :meth:`stop`.

    Args:
        alarms: One or more alarms.
        waiting: Function that returns the current wait of the consumer, or None while the consumer does not wait.
    """

    def __init__(self, alarms: Sequence[Alarm], waiting: Callable[[], Waiting | None]) -> None:
        self._alarms = alarms
        self._waiting = waiting
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="aiostream-watchdog", daemon=True)

    def start(self) -> None:
        """Start the watchdog thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop the watchdog thread and wait at most ``timeout_s`` seconds for its end. Idempotent."""
        self._ended.set()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _watch(self) -> None:
        gone_off: dict[Alarm, int] = {}  # number of the last wait that triggered each alarm
        pause_s = min(alarm.after_s for alarm in self._alarms)
        while not self._ended.wait(pause_s):
            waiting = self._waiting()
            waited_s = 0.0 if waiting is None else perf_counter() - waiting.since
            left = []
            for alarm in self._alarms:
                due_s = alarm.after_s - waited_s
                if waiting is None or gone_off.get(alarm) == waiting.number:
                    due_s = alarm.after_s
                elif due_s <= 0:
                    gone_off[alarm] = waiting.number
                    alarm.go_off(waited_s)
                    due_s = alarm.after_s
                left.append(due_s)
            pause_s = min(left)
