"""Measure the work that a store does for the requests in flight, with a few additions per request.

- The work of a request is the usual duration of requests of its size. So large and small objects count by the time that
  they usually take, and a change of object sizes does not look like a change of speed.
- The load is the time integral of the number of requests in flight (Little's law). So cancelled, failed and stuck
  requests count as load without work.
- A period consists of rounds: one response per request in flight. Responses often arrive in bursts of one round.
  Therefore a period is measured from the mean of its first round to the mean of its last round.
- The work of a request is spread evenly over its duration. A large request that ends after many small ones counts only
  with the part that belongs to the period.

This module does no I/O and reads no clock, because callers pass all times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aiostream_data.storage.load_trial import FILLED, LoadSample

_SETTLED: Final = 8
"""Number of requests of one size class whose mean is the first estimate of their usual duration."""

_KEPT: Final = 1 / 1024
"""Weight of one later request in the usual duration of its size class. The current slowness of the store is divided
out, so that only the proportions between size classes change."""

_SLOWNESS_KEPT: Final = 1 / 64
"""Weight of one request in the current slowness of the store, relative to the usual durations."""

_SIZE_CLASSES: Final = 65


class _Mean(NamedTuple):
    """Means over the responses of one round: time, load so far, and work so far."""

    time: float
    load: float
    work: float


@dataclass(slots=True)
class LoadSampling:
    """Measurement of the requests in flight and of their work since the start of the current period.

    Attributes:
        round_size: Number of responses in a round.
        rounds: Number of complete rounds in the current period.
        began: Time at which the current period began.
        ease: Usual duration of the requests answered in the current period, divided by their duration.
    """

    round_size: int = 0
    rounds: int = 0
    began: float = 0.0
    _began_before: float = 0.0
    _answers: int = 0
    _changed_at: float = 0.0
    _load: float = 0.0
    _work: float = 0.0
    _sums: tuple[float, float, float] = (0.0, 0.0, 0.0)
    _first: _Mean | None = None
    _last: _Mean | None = None
    _seconds: float = 0.0
    _usual_seconds: float = 0.0
    _slowness: float = 1.0
    _usual_times: list[float] = field(default_factory=lambda: [0.0] * _SIZE_CLASSES)
    _seen: list[int] = field(default_factory=lambda: [0] * _SIZE_CLASSES)

    @property
    def ease(self) -> float:
        return self._usual_seconds / self._seconds if self._seconds else 0.0

    def begin(self, now: float, in_flight: int) -> None:
        """Begin a period with rounds of ``in_flight`` responses."""
        self._began_before, self.began, self._changed_at = self.began, now, now
        self.round_size, self.rounds, self._answers = in_flight, 0, 0
        self._load = self._work = self._seconds = self._usual_seconds = 0.0
        self._sums, self._first, self._last = (0.0, 0.0, 0.0), None, None

    def passed(self, now: float, in_flight: int) -> None:
        """Record that ``in_flight`` requests were in flight until ``now``. Call it before each change of the number."""
        self._load += in_flight * (now - self._changed_at)
        self._changed_at = now

    def answered(self, now: float, seconds: float, in_flight: int, nbytes: int) -> bool:
        """Record a response of ``nbytes`` object bytes, which took ``seconds``. Return True if a round is complete."""
        self.passed(now, in_flight)
        usual_s = self._learn(nbytes.bit_length(), seconds)
        self._seconds += seconds
        self._usual_seconds += usual_s
        before_s = now - self._began_before
        self._work += usual_s if seconds <= before_s else usual_s * before_s / seconds
        times, load, work = self._sums
        self._sums = (times + now - self.began, load + self._load, work + self._work)
        self._answers += 1
        if self._answers < self.round_size:
            return False
        self._end_round()
        return True

    def sample(self, in_flight: int) -> LoadSample:
        """Return the measurement from the first to the last round of the current period.

        Args:
            in_flight: Number of requests in flight at the end of the period.
        """
        first, last = self._first, self._last
        if first is None or last is None or last.time <= first.time or last.load <= first.load:
            return LoadSample(0.0, 0.0, is_steady=False)
        load = last.load - first.load
        mean = load / (last.time - first.time)
        is_steady = FILLED * max(mean, in_flight, self.round_size) <= min(mean, in_flight, self.round_size)
        return LoadSample(mean, (last.work - first.work) / load, is_steady)

    @property
    def request_s(self) -> float:
        """Average duration of the requests answered in the current period, in seconds."""
        return self._seconds / max(1, self.rounds * self.round_size + self._answers)

    def _end_round(self) -> None:
        self._last = _Mean(*(each / self.round_size for each in self._sums))
        self._first = self._first or self._last
        self._sums, self._answers = (0.0, 0.0, 0.0), 0
        self.rounds += 1

    def _learn(self, bits: int, seconds: float) -> float:
        size_class = min(bits, _SIZE_CLASSES - 1)
        seen = self._seen[size_class] = self._seen[size_class] + 1
        share = 1 / seen if seen <= _SETTLED else _KEPT
        usual_s = self._usual_times[size_class]
        if usual_s and seen > _SETTLED:
            self._slowness += _SLOWNESS_KEPT * (seconds / usual_s - self._slowness)
            seconds /= self._slowness
        usual_s += share * (seconds - usual_s)
        self._usual_times[size_class] = usual_s
        return usual_s
