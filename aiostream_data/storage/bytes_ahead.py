"""Compute the number of bytes to read ahead from one host or bucket, as bandwidth times latency.

With fewer bytes, connections would be idle. More bytes only need memory: they leave the processor's cache before they
are used, and each page that is used for the first time costs a page fault. This module does no I/O and reads no clock.

References: BBR (Cardwell et al., 2016), which limits the bytes in flight by the maximum rate and the minimum latency.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

LEAST: Final = 32 << 20
MOST: Final = 256 << 20
"""Bounds of the result in bytes. The maximum is sufficient for 5 GB/s at a latency of 50 ms."""

UNKNOWN: Final = 64 << 20
"""Result in bytes before the first measurements."""

MULTIPLE: Final = 3
"""Result as a multiple of bandwidth times latency: bytes in flight, and those that arrived before their turn."""

LATENCY_WINDOW_S: Final = 30.0
"""The shortest latency of the current and of the last window of this length counts, in seconds."""

RATE_WINDOW_S: Final = 0.1
"""Minimum duration of a measurement of the bandwidth, in seconds."""

_KEPT: Final = 0.8
"""Weight of earlier measurements of the bandwidth if a new one is lower."""


@dataclass(slots=True)
class BytesAhead:
    """Measurements of one host or bucket.

    The mean latency would be wrong: with many requests in flight, most responses wait for other responses.
    """

    _latency_since: float = -inf
    _shortest: float = inf  # latency in seconds
    _last_shortest: float = inf
    _rate_since: float = -inf
    _received: int = 0
    _rate: float = 0.0  # bytes per second

    @property
    def nbytes(self) -> int:
        """Number of bytes to read ahead."""
        latency_s = min(self._shortest, self._last_shortest)
        if not self._rate or latency_s == inf:
            return UNKNOWN
        return int(max(LEAST, min(MOST, MULTIPLE * self._rate * latency_s)))

    def took(self, now: float, first_byte_s: float, nbytes: int) -> None:
        """Record a response of ``nbytes`` bytes, whose first byte arrived after ``first_byte_s`` seconds."""
        if now - self._latency_since > LATENCY_WINDOW_S:
            self._latency_since, self._last_shortest, self._shortest = now, self._shortest, inf
        if first_byte_s < self._shortest:
            self._shortest = first_byte_s
        self._received += nbytes
        passed_s = now - self._rate_since
        if passed_s >= RATE_WINDOW_S:
            if passed_s < 10 * RATE_WINDOW_S:  # otherwise, nobody read for a while
                rate = self._received / passed_s
                self._rate = max(rate, _KEPT * self._rate + (1 - _KEPT) * rate)
            self._rate_since, self._received = now, 0
