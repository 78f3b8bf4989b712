"""When to ask a second time for a range whose first answer is late, and how often that may be done.

How this works. The times of the last answers are kept by size class; a request that has taken longer than 95 in 100 of
its class, and twice as long as is usual, is sent once more, and whichever is first is used: where all take about as
long, they wait for each other or for this process, and asking twice makes that worse. What is asked for twice is
bounded by a share of all bytes, so that a store which is slow as a whole is not asked for twice as much. After Dean and
Barroso, "The Tail at Scale".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

KEPT: Final = 128
"""Times kept of each size class."""

LEAST: Final = 32
"""Times that have to be known of a class before anything is hedged."""

QUANTILE: Final = 0.95

USUAL: Final = 2.0
"""What is late has taken so many times as long as half of them, too."""

SHARE: Final = 0.02
"""Most bytes asked for twice, as a share of those delivered."""

LEAST_WAIT_S: Final = 0.005
"""Nothing is asked for twice sooner than that."""

_RECKON_EVERY: Final = 16


@dataclass(slots=True)
class _Times:
    last: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    seen: int = 0
    late_s: float | None = None

    def add(self, seconds: float) -> None:
        self.last.append(seconds)
        self.seen += 1
        if len(self.last) >= LEAST and (self.late_s is None or self.seen % _RECKON_EVERY == 0):
            times = sorted(self.last)
            self.late_s = max(times[int(QUANTILE * len(times))], USUAL * times[len(times) // 2])


@dataclass(slots=True)
class Hedging:
    """What one store has seen.

    Attributes:
        delivered, doubled: Bytes that were asked for, and those asked for a second time.
        begun, won: Second requests, and those that were first with the answer.
    """

    delivered: int = 0
    doubled: int = 0
    begun: int = 0
    won: int = 0
    _times: dict[int, _Times] = field(default_factory=dict)

    def wait_s(self, nbytes: int) -> float | None:
        """Return how long to wait for an answer before asking again; None for ever."""
        times = self._times.get(nbytes.bit_length())
        if times is None or times.late_s is None or self.doubled + nbytes > SHARE * self.delivered:
            return None
        return max(LEAST_WAIT_S, times.late_s)

    def begin(self, nbytes: int) -> bool:
        """Return whether there may be a second request now, and count it."""
        if self.doubled + nbytes > SHARE * self.delivered:
            return False
        self.doubled += nbytes
        self.begun += 1
        return True

    def answered(self, nbytes: int, seconds: float) -> None:
        """Record the time that an answer took, from the first request for it."""
        self.delivered += nbytes
        times = self._times.get(nbytes.bit_length())
        if times is None:
            times = self._times[nbytes.bit_length()] = _Times()
        times.add(seconds)
