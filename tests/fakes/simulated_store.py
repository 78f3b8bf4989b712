"""A store, its readers and the clock, simulated: requests proceed at a speed that depends on their number."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from aiostream_data.storage.aimd import Aimd

Speed: TypeAlias = Callable[[int, float], float]
"""``speed(in_flight, now)`` is the speed of each request, where 1 is the speed of an idle store."""

Request: TypeAlias = Callable[[random.Random], tuple[float, int]]
"""Draws the seconds that a request takes on an idle store, and the bytes of its object."""

STEP_S = 0.05
"""Longest time for which a speed is taken to be constant."""


def latency_only(in_flight: int, now: float) -> float:
    return 1.0


def capacity(most: int) -> Speed:
    """Serve as many requests as ``most`` in the same time, and share out the capacity beyond."""
    return lambda in_flight, now: min(1.0, most / in_flight)


def degrading(most: int, power: float = 2.0) -> Speed:
    """Lose throughput with every request beyond ``most``."""
    return lambda in_flight, now: min(1.0, (most / in_flight) ** power)


def taking(seconds: float, nbytes: int = 1 << 18, spread: float = 0.2) -> Request:
    return lambda rng: (seconds * rng.uniform(1 - spread, 1 + spread), nbytes)


def taking_exponential_times(seconds: float, nbytes: int = 1 << 18) -> Request:
    return lambda rng: (rng.expovariate(1 / seconds), nbytes)


@dataclass
class SimulatedStore:
    """Readers that keep ``demand(now)`` requests in flight, as far as the limit allows.

    Attributes:
        fixed: A limit that never changes, in place of the adaptive one.
        limits: The limit after each response, with the time.
    """

    speed: Speed
    request: Request
    demand: Callable[[float], int]
    fixed: int | None = None
    aimd: Aimd = field(default_factory=Aimd)
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    now: float = 0.0
    in_flight: int = 0
    work: float = 0.0
    limits: list[tuple[float, float]] = field(default_factory=list)
    _progress: float = 0.0
    _sent: int = 0
    _left: list[tuple[float, int, float, float, int]] = field(default_factory=list)

    @property
    def limit(self) -> int:
        return self.fixed or max(1, int(self.aimd.limit))

    def run(self, seconds: float) -> float:
        """Return the throughput: the work done per second, in seconds of an idle store."""
        end, before = self.now + seconds, self.work
        while self.now < end:
            self._send()
            done_at, _, sent_at, work, nbytes = self._left[0]
            speed = self.speed(self.in_flight, self.now)
            left_s = (done_at - self._progress) / speed
            if left_s > STEP_S:
                self.now += STEP_S
                self._progress += STEP_S * speed
                continue
            heapq.heappop(self._left)
            self.now += max(0.0, left_s)
            self._progress = done_at
            self._answer(sent_at, work, nbytes)
        return (self.work - before) / seconds

    def range_of_limits(self, since: float) -> tuple[float, float]:
        """Return the least and the highest limit since a time."""
        limits = [limit for at, limit in self.limits if at >= since]
        return min(limits), max(limits)

    def _send(self) -> None:
        while self.in_flight < min(self.limit, self.demand(self.now)):
            self.aimd.passed(self.now, self.in_flight)
            self.in_flight += 1
            self._sent += 1
            work, nbytes = self.request(self.rng)
            heapq.heappush(self._left, (self._progress + work, self._sent, self.now, work, nbytes))

    def _answer(self, sent_at: float, work: float, nbytes: int) -> None:
        self.work += work
        self.aimd.answered(self.now, self.now - sent_at, self.in_flight, nbytes)
        self.aimd.passed(self.now, self.in_flight)
        self.in_flight -= 1
        self.limits.append((self.now, self.aimd.limit))


def best_throughput(speed: Speed, request: Request, demand: int) -> float:
    """Return the throughput of the best fixed limit."""
    fixed = [limit for limit in (1, 2, 4, 6, 8, 11, 16, 22, 32, 45, 64, 90, 128, 256) if limit <= demand]
    return max(SimulatedStore(speed, request, lambda now: demand, limit).run(5.0) for limit in fixed)
