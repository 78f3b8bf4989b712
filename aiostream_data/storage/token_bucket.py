"""Token bucket: compute how long a request must wait to stay below a rate. Reads no clock: callers pass all times.

The bucket is implemented as a queue in which each request occupies its share of a second. A request may start when all
earlier requests have used up their time. After an idle period, a short burst may start at once. Requests are never
refused; each gets a waiting time, in order of arrival. A request larger than the burst only delays the requests behind
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BURST_S: Final = 0.25
"""Maximum burst after an idle period: the tokens of this many seconds."""


@dataclass(slots=True)
class TokenBucket:
    """Rate limiter. Each caller may pass a different rate.

    Attributes:
        free_at: Time at which all reserved tokens are used up.
    """

    free_at: float = float("-inf")

    def reserve(self, now: float, tokens: float, per_second: float) -> float:
        """Reserve ``tokens`` and return the seconds to wait before using them."""
        begins = max(self.free_at, now - BURST_S)
        self.free_at = begins + tokens / per_second
        return max(0.0, begins - now)

    def give_back(self, tokens: float, per_second: float) -> None:
        """Return reserved tokens that will not be used, for later reservations."""
        self.free_at -= tokens / per_second
