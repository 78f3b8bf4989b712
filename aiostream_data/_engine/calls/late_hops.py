"""Find hops (units of work on a worker) that run much longer than planned."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiostream_data.executors.base import Outcome

STRAGGLER_S: Final = 0.1
"""Seconds after which a running hop is late. With AUTO concurrency, a late hop does not count as an occupied worker."""


@dataclass(eq=False)
class LateHops:
    """The late hops of one stage. For one event loop.

    Executors start hops in the order of their submission. So the time of a hop begins when enough earlier hops have
    ended, not while the hop waits for a worker.

    Attributes:
        most: Maximum number of late hops.
        changed: Function that is called after the number of late hops has changed.
        workers: Number of hops that run at the same time, in addition to the late hops.
    """

    most: int
    changed: Callable[[], None]
    workers: int = 1
    _waiting: deque[asyncio.Future[Outcome]] = field(default_factory=deque)
    _timers: dict[asyncio.Future[Outcome], asyncio.TimerHandle] = field(default_factory=dict)
    _late: set[asyncio.Future[Outcome]] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._late)

    def watch(self, hop: asyncio.Future[Outcome]) -> None:
        """Measure the time of a hop from now on, or from the end of an earlier hop if all workers are occupied."""
        self._waiting.append(hop)
        hop.add_done_callback(self._is_over)
        self._start_timers()

    def _start_timers(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._timers) < self.workers + len(self._late):
            hop = self._waiting.popleft()
            if not hop.done():
                self._timers[hop] = loop.call_later(STRAGGLER_S, self._is_late, hop)

    def _is_late(self, hop: asyncio.Future[Outcome]) -> None:
        if len(self._late) < self.most:
            self._late.add(hop)
            self.changed()
            self._start_timers()

    def _is_over(self, hop: asyncio.Future[Outcome]) -> None:
        timer = self._timers.pop(hop, None)
        if timer is not None:
            timer.cancel()
        if hop in self._late:
            self._late.discard(hop)
            self.changed()
        self._start_timers()
