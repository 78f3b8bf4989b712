"""Streams whose work runs when a seeded scheduler picks it, one step at a time, and events recorded in them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

Step = Callable[[], bool]
"""One step of a stream; returns False when it must be tried again after a step of another stream."""

_RELUCTANCES = (1, 5, 60)
"""How a stream is favoured among those that can go on: 1 as any, 60 next to never before others."""


class Point:
    """What one recording of an event stands for.

    Attributes:
        passed: Whether the device has passed it.
        recorded: False for what stands for no recording at all; waiting for that is over at once, as on CUDA.
    """

    def __init__(self, recorded: bool = True) -> None:
        self.passed = not recorded
        self.recorded = recorded

    def pass_(self) -> bool:
        self.passed = True
        return True


class Event:
    """A reusable event. Waiting means waiting for the recording that is the latest at that moment.

    Attributes:
        latest: What was recorded last.
        retired: Whether nobody may wait for it until it is recorded anew.
    """

    def __init__(self) -> None:
        self.latest = Point(recorded=False)
        self.retired = False

    def record(self) -> Point:
        """Return the point of a new recording."""
        self.latest = Point()
        return self.latest


class ModelStreams:
    """Queues of steps, by the stream's handle. Not thread-safe: its owner holds a lock."""

    def __init__(self, chance: random.Random, haste: float) -> None:
        """Make no stream yet.

        Args:
            chance: Decides everything that streams leave open.
            haste: How likely some steps run when one is enqueued; 0: only when somebody waits.
        """
        self._chance = chance
        self._haste = haste
        self._queues: dict[int, deque[Step]] = {}
        self._reluctance: dict[int, int] = {}

    def make(self) -> int:
        """Return the handle of a new stream, favoured or starved as chance has it."""
        handle = len(self._queues) + 1
        self._queues[handle] = deque()
        self._reluctance[handle] = self._chance.choice(_RELUCTANCES)
        return handle

    def enqueue(self, handle: int, *steps: Step) -> None:
        """Put steps on a stream, and perhaps run some of any stream."""
        self._queues[handle].extend(steps)
        # Lazy, then in a burst: work piles up, and what the host forgot to wait for has not run yet.
        if self._chance.random() < self._haste:
            for _ in range(self._chance.randrange(12)):
                self.run_a_step()

    def run_a_step(self) -> bool:
        """Run the first step of a stream that can go on; False when none can."""
        waiting = [handle for handle, queue in self._queues.items() if queue]
        busy = [(self._chance.random() ** self._reluctance[handle], handle) for handle in waiting]
        for _, handle in sorted(busy, reverse=True):
            queue = self._queues[handle]
            if queue[0]():
                queue.popleft()
                return True
        return False

    @property
    def idle(self) -> bool:
        """True when nothing is enqueued."""
        return not any(self._queues.values())
