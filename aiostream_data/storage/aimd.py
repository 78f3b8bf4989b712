"""How many requests a part of a store bears at once: found by asking for more until it says no.

How this works. As in TCP: the limit doubles with every round of answers until the store first says that it is too much,
and from then on grows by one a round, and halves whenever the store says so again. Answers that take far longer than
they did when few were asked for are a store's way to say it before it says it; they take a tenth. What belongs to one
round is cut once. Pure: told times, never asks for them. After Chiu and Jain (1989), and Jacobson (1988).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST: Final = 16.0
"""Requests at once in the beginning."""

MOST: Final = 1024.0
"""More are never of use to one process."""

SLOW: Final = 4.0
"""Answers that begin so many times later than the quickest did are slow; ..."""

SLOW_S: Final = 0.050
"""... if they are later by that much: below, it is this process that is busy."""

_FORGET: Final = 0.01
"""By how much the quickest time grows with every answer, so that a route that became longer is learned."""


@dataclass(slots=True)
class Aimd:
    """The state of one part of a store.

    Attributes:
        limit: Requests that may be on their way at once.
        quiet_until: No request before, since the store asked for that (Retry-After).
        throttled: How often the store said that it is too much.
    """

    limit: float = FIRST
    quiet_until: float = 0.0
    throttled: int = 0
    _doubles: bool = True
    _cut_at: float = -1e9
    _round_s: float = 0.1
    _quickest_s: float = 0.0
    _usual_s: float = 0.0

    def answered(self, now: float, first_byte_s: float, in_flight: int) -> None:
        """Record a success: how long it took to begin, and how many requests were on their way."""
        self._usual_s += 0.1 * (first_byte_s - self._usual_s) if self._usual_s else first_byte_s
        self._quickest_s = min(self._quickest_s * (1 + _FORGET), first_byte_s) if self._quickest_s else first_byte_s
        self._round_s = max(0.001, self._usual_s)
        if self._is_slow():
            if now - self._cut_at > 4 * self._round_s:
                self._cut(now, 0.9)
        elif in_flight >= 0.75 * int(self.limit):  # what is not used up says nothing about more
            self.limit = min(MOST, self.limit + (1.0 if self._doubles else 1.0 / self.limit))

    def refused(self, now: float, retry_after_s: float | None) -> None:
        """Record that the store said that it is too much."""
        self.throttled += 1
        if retry_after_s is not None:
            self.quiet_until = max(self.quiet_until, now + retry_after_s)
        if now - self._cut_at > self._round_s:
            self._cut(now, 0.5)

    def _is_slow(self) -> bool:
        return self._usual_s > SLOW * self._quickest_s and self._usual_s > self._quickest_s + SLOW_S

    def _cut(self, now: float, share: float) -> None:
        self._doubles = False
        self._cut_at = now
        self.limit = max(1.0, self.limit * share)
