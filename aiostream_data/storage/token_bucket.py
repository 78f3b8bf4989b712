"""Token bucket: compute how long a request must wait to stay below a rate limit. Callers pass the current time.

The bucket is implemented as a queue in which each request occupies a time slot proportional to its tokens. A request
may start when the time slots of all previous requests have passed. After an idle period, a short burst of requests may
start without waiting. Requests are never refused. Waiting times are assigned in order of arrival. A request larger than
the burst only delays the requests after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BURST_S: Final = 0.25
"""After an idle period, a burst can use the tokens of at most this many seconds."""


@dataclass(slots=True)
class TokenBucket:
    """Rate limiter. Each call of :meth:`reserve` may pass a different rate.

    Attributes:
        free_at: Time at which all reserved tokens have been used.
    """

    free_at: float = float("-inf")

    def reserve(self, now: float, tokens: float, per_second: float) -> float:
        """Reserve ``tokens`` and return the seconds to wait before the tokens may be used."""
        begins = max(self.free_at, now - BURST_S)
        self.free_at = begins + tokens / per_second
        return max(0.0, begins - now)

    def give_back(self, tokens: float, per_second: float) -> None:
        """Release reserved tokens that will not be used, so that later reservations can use them."""
        self.free_at -= tokens / per_second
