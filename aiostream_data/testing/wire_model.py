"""Model of a test server's network: time to first byte, bandwidth and limits."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from aiostream_data.errors import PlanError


@dataclass(frozen=True, kw_only=True, slots=True)
class WireModel:
    """Network and capacity of a remote store, as measured by a client.

    Attributes:
        first_byte_s: Median time from a request to the first byte, in seconds.
        spread: Sigma of the log-normal distribution of ``first_byte_s``; 0 for a constant time.
        slow_share: Fraction of the requests that take ``slow_s`` instead of ``first_byte_s``, to test hedged requests.
        slow_s: Seconds to the first byte of slow requests.
        bytes_per_s: Bandwidth of one connection in bytes per second; None for no limit.
        max_connections: Maximum number of connections; the server resets further connections.
        max_requests_per_s: Maximum number of requests per second; the server answers further requests with status 503.
        keep_alive_s: Seconds after which the server closes idle connections; None for never.

    Raises:
        PlanError: A number of the model is out of range.
    """

    first_byte_s: float = 0.0
    spread: float = 0.0
    slow_share: float = 0.0
    slow_s: float = 0.0
    bytes_per_s: float | None = None
    max_connections: int | None = None
    max_requests_per_s: float | None = None
    keep_alive_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("first_byte_s", "spread", "slow_share", "slow_s"):
            if not getattr(self, name) >= 0.0:
                raise PlanError(f"{name} must be at least 0, got {getattr(self, name)!r}")
        for name in ("bytes_per_s", "max_connections", "max_requests_per_s", "keep_alive_s"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise PlanError(f"{name} must be greater than 0, got {value!r}")

    def draw_first_byte_s(self, rng: random.Random) -> float:
        """Draw a random time to the first byte of one request."""
        if self.slow_share and rng.random() < self.slow_share:
            return self.slow_s
        if self.spread and self.first_byte_s:
            return self.first_byte_s * math.exp(rng.gauss(0.0, self.spread))
        return self.first_byte_s


class Capacity:
    """Token bucket that holds at most the requests of one second and refills at a constant rate."""

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._left = per_s
        self._looked_s = now_s

    def take(self, now_s: float) -> bool:
        """Take one token; return False if the server cannot accept a request now."""
        self._left = min(self._per_s, self._left + (now_s - self._looked_s) * self._per_s)
        self._looked_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
