"""Choose the number of bytes to read ahead from one host or bucket: few for a near store. Does no I/O.

A near store answers whole requests within milliseconds. More bytes than its connections can hold only need memory: they
leave the processor's cache before they are used, and each page that is used for the first time costs a page fault. From
a distant or slow store, many requests must be in flight, and their number is not known before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

LEAST: Final = 32 << 20
"""Bytes ahead of a near store."""

MOST: Final = 256 << 20
"""Bytes ahead of any other store. They are sufficient for 5 GB/s at a latency of 50 ms."""

SHORTEST_S: Final = 0.005
"""A store is near only if a recent response took at most this time with its body, in seconds."""

MEAN_S: Final = 0.05
"""A store is near only if responses take less than this time on average, in seconds.

With many requests in flight, the responses of a near store wait for each other, so they take some of this time."""

WINDOW_S: Final = 30.0
"""Responses of the current and of the last window of this length are recent, in seconds."""

_WEIGHT: Final = 1 / 64
"""Weight of one response in the mean."""


@dataclass(slots=True)
class BytesAhead:
    """Measurements of one host or bucket."""

    _since: float = -inf
    _shortest: float = inf  # in seconds
    _last_shortest: float = inf
    _mean: float = 0.0

    @property
    def nbytes(self) -> int:
        """Number of bytes to read ahead."""
        is_near = min(self._shortest, self._last_shortest) <= SHORTEST_S and self._mean < MEAN_S
        return LEAST if is_near else MOST

    def took(self, now: float, seconds: float, nbytes: int) -> None:
        """Record a response of ``nbytes`` bytes, which took ``seconds`` seconds with its body."""
        if not nbytes:  # such responses can be faster than those with data
            return
        is_first = self._since == -inf
        self._mean = seconds if is_first else self._mean + _WEIGHT * (seconds - self._mean)
        if now - self._since > WINDOW_S:
            self._since, self._last_shortest, self._shortest = now, self._shortest, inf
        self._shortest = min(self._shortest, seconds)
