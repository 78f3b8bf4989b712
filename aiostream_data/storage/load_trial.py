"""Decide from measured throughput whether a store answers faster with more or with fewer concurrent requests.

A trial compares two limits on concurrent requests. Each arm of a trial applies one limit for a few rounds of responses.
Pairs of arms alternate in the order ABBA BAAB, so that drift and single disturbances affect both limits alike. The
result of a pair is the elasticity of throughput: 1 if throughput grows in proportion to the requests in flight, 0 if
throughput stays the same, and negative if more requests reduce it. A trial ends as soon as its pairs agree.

The idea follows PCC (Dong et al., NSDI 2015; Vivace, NSDI 2018), which tries two sending rates in alternation and
keeps the better rate. Limits based on latency alone (TCP Vegas, gradient limits) confuse noisy or size-dependent
latencies with overload. This module does no I/O and reads no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import log, sqrt
from typing import Final, NamedTuple

USEFUL: Final = 0.1
"""Elasticity of throughput above which more concurrent requests are useful."""

MOST_PAIRS: Final = 8
"""Maximum number of pairs of one trial. A trial that is undecided after this number changes no limit."""

MOST_VOID: Final = 4
"""Maximum number of arms of one trial with too few requests to count. The next such arm ends the trial."""

FILLED: Final = 0.75
"""An arm counts only if requests used at least this fraction of its limit on average."""

_APART: Final = 1.1
"""Minimum ratio between the average concurrency of the two arms of a pair."""

_SPREAD: Final = 0.15
"""Assumed standard deviation of elasticities, before any pair has been measured."""

_SURE: Final = 2.0
"""Standard errors between the mean elasticity and :data:`USEFUL` that a verdict requires."""

_MORE_FIRST: Final = (False, True, True, False)
"""Order of the arms in each pair (Thue-Morse sequence): True if the arm with more requests is first."""


class LoadSample(NamedTuple):
    """Measurement of one period.

    Attributes:
        in_flight: Average number of requests in flight.
        speed: Work done per second and request in flight. The unit is arbitrary.
        is_steady: True if the number of requests in flight hardly changed.
    """

    in_flight: float
    speed: float
    is_steady: bool = True


class LoadVerdict(Enum):
    """Result of a trial: use fewer requests, use more requests, or keep the limit."""

    FEWER = "fewer"
    MORE = "more"
    KEEP = "keep"


def elasticity(fewer: LoadSample, more: LoadSample) -> float | None:
    """Return the relative growth of throughput divided by the relative growth of the requests in flight.

    Return None if the two samples have about the same concurrency, or if nothing was done in one of them.
    """
    if more.in_flight < _APART * fewer.in_flight or fewer.speed <= 0 or more.speed <= 0:
        return None
    return 1.0 + log(more.speed / fewer.speed) / log(more.in_flight / fewer.in_flight)


def verdict_of(elasticities: list[float]) -> LoadVerdict | None:
    """Return the verdict that pairs with these elasticities support, or None if more pairs are necessary.

    The spread of the elasticities determines how many pairs are necessary: two if the difference is large.
    """
    count = len(elasticities)
    if count < 2:
        return None
    mean = sum(elasticities) / count
    variance = (_SPREAD**2 + sum((each - mean) ** 2 for each in elasticities)) / count
    margin = _SURE * sqrt(variance / count)
    if mean - margin > USEFUL:
        return LoadVerdict.MORE
    if mean + margin < USEFUL:
        return LoadVerdict.FEWER
    return LoadVerdict.KEEP if count >= MOST_PAIRS else None


@dataclass(slots=True)
class LoadTrial:
    """Trial of two limits on concurrent requests.

    Attributes:
        fewer, more: The two numbers of concurrent requests. A trial of a lower limit than before leaves the limit at
            ``usual`` in the arms with ``more`` requests.
        usual: Limit that applied before the trial, which an undecided trial restores.
        grows: True if the trial tests a higher limit than before; False if it tests a lower limit.
    """

    fewer: int
    more: int
    usual: float
    grows: bool
    _first: LoadSample | None = None
    _arms: int = 0
    _void: int = 0
    _elasticities: list[float] = field(default_factory=list)

    @property
    def limit(self) -> float:
        """Limit on concurrent requests in the current arm."""
        if not self._is_more():
            return float(self.fewer)
        return float(self.more) if self.grows else self.usual

    def add(self, sample: LoadSample) -> LoadVerdict | None:
        """Record the measurement of the current arm and go on to the next arm. Return the verdict if the trial ends."""
        if not sample.is_steady or sample.in_flight < FILLED * (self.more if self._is_more() else self.fewer):
            return self._add_void()
        if self._first is None:
            self._first = sample
            self._arms += 1
            return None
        pair = (sample, self._first) if not self._is_more() else (self._first, sample)
        self._first = None
        self._arms += 1
        found = elasticity(*pair)
        if found is None:
            return self._add_void()
        self._elasticities.append(found)
        return verdict_of(self._elasticities)

    def limit_after(self, verdict: LoadVerdict) -> float:
        """Return the limit to use after the trial."""
        if verdict is LoadVerdict.MORE and self.grows:
            return float(self.more)
        if verdict is LoadVerdict.FEWER and not self.grows:
            return float(self.fewer)
        return self.usual

    def _is_more(self) -> bool:
        pair, second = divmod(self._arms, 2)
        return _MORE_FIRST[pair % len(_MORE_FIRST)] != bool(second)

    def _add_void(self) -> LoadVerdict | None:
        self._void += 1
        return LoadVerdict.KEEP if self._void > MOST_VOID else None
