"""The shortest time that a large request to a store took: latency and bytes, without waiting for other requests.

The number of requests in flight is their rate times their duration (Little's law). If more requests are in flight than
a store can serve, they wait for each other: their duration grows, and their rate does not. So rate times shortest
duration is the number of requests that a store serves at the same time. TCP congestion control (BBR) uses the same
product.

The module does no I/O and reads no clock, because callers pass all times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SAME_SIZE: Final = 1.5
"""Requests whose sizes differ by at most this factor are comparable. A larger request replaces smaller ones."""

DOUBLES_S: Final = 30.0
"""Time in which an old measurement doubles, because the distance and the load of a store change."""

MOST_DOUBLINGS: Final = 20.0
"""Maximum number of doublings. Without it, the time would overflow if a loader pauses for days."""


@dataclass(slots=True)
class FastestRequest:
    """Shortest time of the requests of one source."""

    _nbytes: int = 0
    _seconds: float = 0.0
    _at_s: float = 0.0

    @property
    def is_known(self) -> bool:
        """True after the first request."""
        return self._nbytes > 0

    def took(self, nbytes: int, seconds: float, now_s: float) -> None:
        """Record a request that succeeded. Requests that are much smaller than earlier ones are ignored.

        Args:
            nbytes: Size of the request in bytes.
            seconds: Time from the request to its last byte.
            now_s: Time in seconds, from any start.
        """
        is_smaller = nbytes * SAME_SIZE < self._nbytes
        is_larger = nbytes > self._nbytes * SAME_SIZE
        if is_larger or (not is_smaller and seconds < self.seconds(now_s)):
            self._nbytes, self._seconds, self._at_s = nbytes, seconds, now_s

    def seconds(self, now_s: float) -> float:
        """Return the shortest time of a large request in seconds; 0 before the first."""
        return self._seconds * 2 ** min((now_s - self._at_s) / DOUBLES_S, MOST_DOUBLINGS)
