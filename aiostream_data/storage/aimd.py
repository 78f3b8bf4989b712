"""Limit concurrent requests to the number that a store answers fastest, from its refusals and its throughput.

Three rules change the limit:

- At first, the limit doubles with every round of responses, until throughput stops growing or the store refuses a
  request.
- A throttling response halves the limit, at most once per round. Then the limit grows by one per round, as in TCP
  (additive increase, multiplicative decrease). If refusals have reduced the limit further than to half, it first grows
  by up to a quarter per round, like TCP below its slow-start threshold.
- Many stores never refuse a request, but slow down. After the first phase, trials of two limits decide whether fewer
  requests have the same throughput, or more requests a higher throughput; see :mod:`.load_trial`. A trial begins when
  the speed of the store has changed, and otherwise at intervals that double while trials change nothing.

The limit grows only while requests use it, so a slow consumer does not raise it. Requests that take only a few
milliseconds are not judged, because their duration depends on the load of this process. This module does no I/O and
reads no clock, because callers pass all times.

References: Chiu and Jain (1989), Jacobson (1988); for the trials, PCC (Dong et al., 2015).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aiostream_data.storage.load_sampling import LoadSampling
from aiostream_data.storage.load_trial import FILLED, LoadSample, LoadTrial, LoadVerdict

FIRST: Final = 16.0
"""Initial limit on concurrent requests."""

MOST: Final = 1024.0
"""Upper bound of the limit on concurrent requests to one host or bucket prefix."""

QUICK_S: Final = 0.010
"""Requests with a shorter average duration in seconds are not judged: the load of this process delays them as much."""

STEP: Final = 1.4
"""Ratio between the two limits of a trial, unless the speed of the store suggests a larger ratio."""

LONG_STEP: Final = 2.0
"""Ratio between the two limits of a trial that follows a successful trial in the same direction."""

MOST_STEP: Final = 4.0
"""Maximum ratio between the two limits of a trial."""

CHANGED: Final = 1.5
"""Factor by which the speed of a store must change for a trial to begin at once."""

FEWEST_PERIODS: Final = 16
MOST_PERIODS: Final = 64
"""Minimum and maximum number of periods between two trials of a store whose speed stays the same."""

MOST_PATIENCE: Final = 32
"""Maximum number of periods between a trial and a trial because of a slower store. The number doubles if such trials do
not change the limit."""

_GROWTH: Final = 1.25
"""In the first phase, minimum growth of throughput within two rounds for the limit to continue doubling."""

_ENOUGH: Final = 0.9
"""Throughputs that differ by less than this factor count as equal."""

_COLLAPSED: Final = 0.6
"""If the throughput of the last round is less than this fraction of the best throughput, the first limit may have been
too high."""

_ROUNDS_KEPT: Final = 64
"""Number of the most recent rounds of the first phase whose throughput is stored."""

_CALM_ROUNDS: Final = 8
"""Number of rounds without a refusal after which the next refusal shows the store's capacity."""

_PERIOD_S: Final = 0.03
"""Minimum duration of a period in seconds."""

_FEWEST_USED: Final = 8
"""Minimum number of requests in flight for a trial of a lower limit without a cause."""

_ANSWERS: Final = 32
"""Minimum number of responses in a period."""

_ROUNDS: Final = 2
"""Minimum number of rounds in a period."""


@dataclass(slots=True)
class Aimd:
    """Adaptive limit on concurrent requests to one host or bucket prefix.

    Attributes:
        limit: Maximum number of concurrent requests.
        quiet_until: Time until which no request may be sent, from the Retry-After header.
        throttled: Number of throttling responses.
    """

    limit: float = FIRST
    quiet_until: float = 0.0
    throttled: int = 0
    _doubles: bool = True
    _adds: bool = False
    _cut_at: float = -1e9
    _regains: float = 0.0
    _since_cut: int = 0
    _round_s: float = 0.1
    _load: LoadSampling = field(default_factory=LoadSampling)
    _settles: bool = False
    _rounds: int = 0
    _unfilled: int = 0
    _throughputs: list[tuple[int, float]] = field(default_factory=list)
    _usual_speed: float = 0.0
    _most_used: int = 0
    _patience: int = 1
    _trial: LoadTrial | None = None
    _step: float = STEP
    _grew: bool | None = None
    _grows_next: bool = True
    _interval: int = FEWEST_PERIODS
    _periods: int = 0

    def passed(self, now: float, in_flight: int) -> None:
        """Record that ``in_flight`` requests were in flight until ``now``. Call it before each change of the number."""
        self._load.passed(now, in_flight)

    def answered(self, now: float, seconds: float, in_flight: int, nbytes: int = 0) -> None:
        """Record a successful response.

        Args:
            seconds: Seconds from the request to the last byte.
            in_flight: Number of requests in flight, including this one.
            nbytes: Object bytes in the response.
        """
        self._round_s += 0.1 * (max(0.001, seconds) - self._round_s)
        self._since_cut += 1
        if self._trial is None and in_flight >= FILLED * int(self.limit):
            self._grow()
        if not self._rounds:
            self._begin_period(now, in_flight)
        if self._load.answered(now, seconds, in_flight, nbytes) and self._load.rounds >= self._rounds:
            self._end_period(now, in_flight)

    def refused(self, now: float, retry_after_s: float | None) -> None:
        """Record a throttling response of the store, and reduce the limit."""
        self.throttled += 1
        if retry_after_s is not None:
            self.quiet_until = max(self.quiet_until, now + retry_after_s)
        if now - self._cut_at > self._round_s:
            if self._trial is not None:
                self._end_trial(self._trial.usual)
            self._regains = self._limit_to_regain()
            self._doubles, self._adds, self._cut_at, self._since_cut = False, True, now, 0
            self.limit = max(1.0, self.limit * 0.5)

    def _limit_to_regain(self) -> float:
        """Return the limit up to which the limit grows faster, if a request is refused now.

        Refusals in quick succession do not lower it. If the store refuses again after some rounds at a lower limit,
        each such refusal brings it closer to half of that limit.
        """
        half = self.limit / 2
        if self._adds and self._since_cut < _CALM_ROUNDS * self.limit:
            return max(half, self._regains)
        return max(half, (self._regains + half) / 2)

    def _grow(self) -> None:
        if self._doubles:
            self.limit = min(MOST, self.limit + 1.0)
        elif self._adds:
            per_round = max(1.0, self.limit / 4) if self.limit < self._regains else 1.0
            self.limit = min(MOST, self.limit + per_round / self.limit)

    def _begin_period(self, now: float, in_flight: int) -> None:
        in_flight = max(1, in_flight)
        self._load.begin(now, in_flight)
        self._rounds = 1 if self._doubles or self._settles else 1 + max(_ROUNDS, -(-_ANSWERS // in_flight))

    def _end_period(self, now: float, in_flight: int) -> None:
        """Decide whether to change the limit, and begin the next period."""
        if self._settles:
            self._settles = False
        elif self._trial is None and self._doubles:
            self._check_growth(in_flight)
        elif now - self._load.began < _PERIOD_S:
            self._rounds += 1
            return
        elif self._trial is not None:
            self._go_on(self._trial, self._load.sample(in_flight))
        elif self._load.request_s >= QUICK_S:
            self._watch(self._load.sample(in_flight))
        self._begin_period(now, in_flight)

    # The first phase: double the limit while throughput grows.

    def _check_growth(self, in_flight: int) -> None:
        if self._load.request_s < QUICK_S or self.limit >= MOST:
            return
        size = self._load.round_size
        self._throughputs.append((size, size * self._load.ease))
        del self._throughputs[:-_ROUNDS_KEPT]
        is_full = in_flight >= FILLED * int(self.limit)
        self._unfilled = self._unfilled + 1 if size >= _FEWEST_USED and not is_full else 0
        # A smaller round ends no growth: few requests were sent, and others may have followed since then.
        if size >= FILLED * FIRST and not _still_grows(self._throughputs, is_full=is_full):
            best = max(throughput for _, throughput in self._throughputs)
            limit = next(each for each, throughput in self._throughputs if throughput >= _ENOUGH * best)
            self._end_growth(float(limit), grows_next=limit > FIRST or self._throughputs[-1][1] > _COLLAPSED * best)
        elif self._unfilled >= FEWEST_PERIODS:
            self._end_growth(self.limit, grows_next=True)

    def _end_growth(self, limit: float, *, grows_next: bool) -> None:
        self._grows_next = grows_next
        self.limit = limit
        self._doubles = False
        self._settles = True
        self._periods = self._interval

    # The second phase: trials.

    def _watch(self, sample: LoadSample) -> None:
        """Begin a trial if the store's speed has changed, or if the last trial was long ago.

        No trial begins while the limit recovers from refusals: it would hold the limit for a second, and a few
        disturbed measurements would stop the growth.
        """
        self._periods += 1
        is_used = sample.in_flight >= FILLED * self.limit
        if not sample.is_steady or (is_used and self._adds and self.limit < self._regains):
            return
        if not self._usual_speed:
            self._usual_speed = sample.speed
        slowdown = self._usual_speed / sample.speed if sample.speed else MOST_STEP
        used = max(1, min(int(self.limit), round(sample.in_flight)))
        self._most_used = max(self._most_used, used)
        is_full = is_used and not self._adds
        if slowdown > CHANGED and self._periods > self._patience:
            self._patience = min(MOST_PATIENCE, 2 * self._patience)
            self._begin_trial(used, grows=False, step=slowdown)
        elif slowdown * CHANGED < 1 and not is_full:
            self._usual_speed = sample.speed
        elif slowdown * CHANGED < 1 or (
            self._periods >= self._interval and (is_full or used >= max(_FEWEST_USED, FILLED * self._most_used))
        ):
            self._begin_trial(int(self.limit) if is_full else used, grows=is_full and self._grows_next, step=STEP)

    def _begin_trial(self, used: int, *, grows: bool, step: float) -> None:
        """Begin a trial of the limit ``used`` and a higher limit if ``grows``, else a lower one."""
        step = min(max(step, STEP), MOST_STEP)
        fewer = used if grows else max(1, int(used / step))
        more = min(int(MOST), max(fewer + 1, round(fewer * step))) if grows else used
        self._periods, self._usual_speed, self._most_used = 0, 0.0, 0
        if fewer < more:
            self._trial = LoadTrial(fewer, more, self.limit, grows)
            self.limit = self._trial.limit
            self._settles = True

    def _go_on(self, trial: LoadTrial, sample: LoadSample) -> None:
        verdict = trial.add(sample)
        if verdict is None:
            changes = self.limit != trial.limit
            self.limit = trial.limit
            if changes:
                self._settles = True
            return
        self._end_trial(trial.limit_after(verdict))
        self._settles = True
        if self.limit != trial.usual:
            self._follow_up(trial)
            return
        used = trial.fewer if trial.grows or verdict is LoadVerdict.FEWER else trial.more
        step, self._step = self._step, STEP
        if step > STEP:
            self._begin_trial(used, grows=trial.grows, step=STEP)
        elif trial.grows and verdict is LoadVerdict.FEWER and self._interval == FEWEST_PERIODS:
            self._begin_trial(used, grows=False, step=STEP)
        else:
            self._interval = min(MOST_PERIODS, 2 * self._interval)
            self._grows_next = not trial.grows
            self._periods = 0 if self._grows_next else self._interval * 3 // 4

    def _follow_up(self, trial: LoadTrial) -> None:
        """After a trial that changed the limit, try another step in the same direction, and a longer step if possible.

        If the direction has changed, the best limit is near, and trials become rare.
        """
        self._patience = 1
        self._adds = self._adds and trial.grows
        if self._grew is (not trial.grows):
            self._interval = min(MOST_PERIODS, 2 * self._interval)
            self._step = STEP
        else:
            self._interval = FEWEST_PERIODS
            self._step = LONG_STEP
        self._grew = self._grows_next = trial.grows
        self._begin_trial(int(self.limit), grows=trial.grows, step=self._step)

    def _end_trial(self, limit: float) -> None:
        self._trial = None
        self.limit = limit


def _still_grows(rounds: list[tuple[int, float]], *, is_full: bool) -> bool:
    """Return True if the last round, with up to twice the requests of the round before it, increased throughput.

    Args:
        rounds: Number of requests and throughput of each round.
        is_full: True if requests used the whole limit. Otherwise, only a loss of throughput counts.
    """
    size, throughput = rounds[-1]
    if any(throughput < _ENOUGH * before for fewer, before in rounds if fewer < FILLED * size):
        return False
    if not is_full or len(rounds) < 3 or rounds[-3][0] >= FILLED * size:
        return True
    return throughput >= _GROWTH * rounds[-3][1]
