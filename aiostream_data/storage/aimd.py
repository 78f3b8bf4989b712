"""Limit concurrent requests by additive increase and multiplicative decrease (AIMD), based on the store's responses.

As in TCP, the limit doubles with every round of responses until its first reduction. Then the limit grows by one per
round of responses. A throttling response halves the limit. A store often slows down before it throttles, so slow
responses reduce the limit by a tenth. The limit is reduced at most once per round of responses. This module does no I/O
and reads no clock, because callers pass all times.

References: Chiu and Jain (1989), Jacobson (1988).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST: Final = 16.0
"""Initial limit on concurrent requests."""

MOST: Final = 1024.0
"""Upper bound of the limit on concurrent requests to one host or bucket prefix."""

SLOW: Final = 4.0
"""Responses are slow if their average latency exceeds the shortest latency by this factor, and also by `SLOW_S`
seconds."""

SLOW_S: Final = 0.050
"""Minimum extra latency of slow responses, in seconds. Shorter delays can be caused by load in this process."""

_FORGET: Final = 0.01
"""Relative growth per response of the recorded shortest latency, so that the record adapts to a slower network
route."""


@dataclass(slots=True)
class Aimd:
    """Adaptive limit on concurrent requests to one host or bucket prefix.

    Attributes:
        limit: Maximum number of concurrent requests.
        quiet_until: Time until which no request may be sent, from the Retry-After header.
        throttled: Number of throttling responses.
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
        """Record the time to the first byte of a successful response, and the number of requests in flight."""
        self._usual_s += 0.1 * (first_byte_s - self._usual_s) if self._usual_s else first_byte_s
        self._quickest_s = min(self._quickest_s * (1 + _FORGET), first_byte_s) if self._quickest_s else first_byte_s
        self._round_s = max(0.001, self._usual_s)
        if self._is_slow():
            if now - self._cut_at > 4 * self._round_s:
                self._cut(now, 0.9)
        elif in_flight >= 0.75 * int(self.limit):  # raise the limit only while requests use it
            self.limit = min(MOST, self.limit + (1.0 if self._doubles else 1.0 / self.limit))

    def refused(self, now: float, retry_after_s: float | None) -> None:
        """Record a throttling response of the store, and reduce the limit."""
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
