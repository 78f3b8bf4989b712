"""Simulated device streams and events. A seeded scheduler chooses the order of single steps."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

Step = Callable[[], bool]
"""One step of work in a device stream.

A step returns False if the scheduler must retry it after a step of another stream.
"""

_RELUCTANCES = (1, 5, 60)
"""Scheduling weights of streams: weight 1 has normal priority, weight 60 almost never runs before others."""


class Point:
    """One recording of a device event in a stream.

    Attributes:
        passed: True after the device has reached the recording.
        recorded: False if the event was never recorded; waiting for such an event returns immediately, as on CUDA.
    """

    def __init__(self, recorded: bool = True) -> None:
        self.passed = not recorded
        self.recorded = recorded

    def pass_(self) -> bool:
        self.passed = True
        return True


class Event:
    """Reusable event. Waiting for an event means waiting for its latest recording at that moment.

    Attributes:
        latest: The latest recording.
        retired: True if nothing may wait for the event until the event is recorded again.
    """

    def __init__(self) -> None:
        self.latest = Point(recorded=False)
        self.retired = False

    def record(self) -> Point:
        """Record the event and return the new recording."""
        self.latest = Point()
        return self.latest


class ModelStreams:
    """Queues of steps, by stream handle. The class is not thread-safe: the owner must hold a lock around every call."""

    def __init__(self, chance: random.Random, haste: float) -> None:
        """Create an empty set of device streams.

        Args:
            chance: Random generator for all scheduling decisions.
            haste: Probability that enqueuing work runs some steps; with 0, steps run only when a caller waits.
        """
        self._chance = chance
        self._haste = haste
        self._queues: dict[int, deque[Step]] = {}
        self._reluctance: dict[int, int] = {}

    def make(self) -> int:
        """Create a stream with random priority and return its handle."""
        handle = len(self._queues) + 1
        self._queues[handle] = deque()
        self._reluctance[handle] = self._chance.choice(_RELUCTANCES)
        return handle

    def enqueue(self, handle: int, *steps: Step) -> None:
        """Append steps to a stream, and possibly run some steps of any stream."""
        self._queues[handle].extend(steps)
        # Run steps in rare bursts: work accumulates, so a missing wait on the host becomes visible.
        if self._chance.random() < self._haste:
            for _ in range(self._chance.randrange(12)):
                self.run_a_step()

    def run_a_step(self) -> bool:
        """Run the next step of a stream that can proceed; return False if no stream can proceed."""
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
        """True if no stream contains a step."""
        return not any(self._queues.values())
