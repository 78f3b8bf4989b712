"""Hedging policy: decide when to send a second request for a late range, within a limit on duplicated bytes.

Recent latencies are recorded separately for each size class of ranges. A request counts as late when it exceeds both
the 95th percentile and twice the median latency of its size class. The median condition prevents second requests to
stores with nearly constant latencies. If latencies are constant, a response is late only because it waits for other
responses or for this process. Duplicated bytes are limited to a share of all bytes, so that hedging does not double the
load on a slow store. Reference: Dean and Barroso, "The Tail at Scale".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

KEPT: Final = 128
"""Number of latencies recorded per size class of ranges."""

LEAST: Final = 32
"""Minimum number of latencies recorded in a size class before its requests are hedged (sent twice if late)."""

QUANTILE: Final = 0.95

USUAL: Final = 2.0
"""A request is late only if it has taken at least this multiple of the median latency."""

SHARE: Final = 0.02
"""Maximum ratio of duplicated bytes to delivered bytes."""

LEAST_WAIT_S: Final = 0.005
"""Minimum delay before a second request, in seconds."""

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
    """Latencies and counters of one store, from which the requests to hedge (send twice if late) are chosen.

    Attributes:
        delivered: Bytes returned to callers.
        doubled: Bytes requested by second requests.
        begun: Second requests sent.
        won: Second requests that were answered before the first request.
    """

    delivered: int = 0
    doubled: int = 0
    begun: int = 0
    won: int = 0
    _times: dict[int, _Times] = field(default_factory=dict)

    def wait_s(self, nbytes: int) -> float | None:
        """Return the seconds to wait before a second request for a late range, or None to send no second request."""
        times = self._times.get(nbytes.bit_length())
        if times is None or times.late_s is None or self.doubled + nbytes > SHARE * self.delivered:
            return None
        return max(LEAST_WAIT_S, times.late_s)

    def begin(self, nbytes: int) -> bool:
        """Count a second request and return True. Return False if the limit on duplicated bytes is reached."""
        if self.doubled + nbytes > SHARE * self.delivered:
            return False
        self.doubled += nbytes
        self.begun += 1
        return True

    def answered(self, nbytes: int, seconds: float) -> None:
        """Record the latency of a response, measured from the first request for its range."""
        self.delivered += nbytes
        times = self._times.get(nbytes.bit_length())
        if times is None:
            times = self._times[nbytes.bit_length()] = _Times()
        times.add(seconds)
