"""Adapt the number of concurrent range requests of one source to the latency and bandwidth of its store.

The number of requests that a store needs is its latency times its bandwidth, divided by the size of a range. Neither
factor is known, and both change while data is read. So the window starts small and grows while the reader waits for
bytes. A few requests are free: up to `FREE` ranges, each late range doubles the window. Above this number, the window
grows only if growth pays. The window measures throughput in rounds, of one window of ranges each. It requests more
ranges, lets one round pass, and compares the next round with the best earlier round. If throughput did not grow, the
window returns to its earlier size, and waits longer before its next attempt.

Throughput varies, so growth can seem to pay although requests only wait for each other. Therefore, the window has at
most `ROOM` times as many ranges as the store serves at the same time, which :class:`.FastestRequest` explains. A larger
window only needs more memory, and new memory costs as much time as receiving the bytes.

If the consumer is slower than the store, ranges arrive in time and the window shrinks. This module does no I/O and
reads no clock, because callers pass all times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from aiostream_data.storage.fastest_request import FastestRequest
from aiostream_data.storage.read_ahead import LEAST, MOST, PATIENCE

FREE: Final = 16
"""Number of ranges up to which every late range doubles the window."""

ROOM: Final = 5.0
"""Maximum ratio of the window to the number of ranges that a store serves at the same time. Some ranges take longer
than the fastest one, and the rows of a shard wait for its slowest range."""

SHRINK_SHARE: Final = 1 / 8
"""Fraction of the window by which it shrinks if the consumer is slower than the store."""

FIRST_FACTOR: Final = 2.0
"""Growth factor of the window until growth fails for the first time."""

LATER_FACTOR: Final = 1.25
"""Growth factor of the window after growth has failed once."""

WORTH: Final = 0.2
"""Minimum ratio of the gain in throughput to the growth of the window. Otherwise, growth has failed."""

ROUND_S: Final = 0.02
"""Minimum duration of a round in seconds. Shorter rounds measure noise."""

LATE_SHARE: Final = 0.125
"""Minimum fraction of the ranges of a round that arrive late if the store limits the speed."""

FIRST_PAUSE: Final = 4
MOST_PAUSE: Final = 64
"""Number of rounds before the window grows again after growth has failed: at first, and at most."""

_KEPT: Final = 0.98
"""Factor by which the best throughput is multiplied in every round, because the speed of a store changes."""


@dataclass(slots=True)
class ReadWindow:
    """Number of concurrent ranges of one source. Growth must increase throughput.

    Attributes:
        ranges: Recommended number of ranges that are in flight or waiting to be processed.
    """

    ranges: int = LEAST
    _fastest: FastestRequest = field(default_factory=FastestRequest)
    _in_time: int = 0
    _count: int = 0
    _weight: int = 0
    _late: int = 0
    _nbytes: int = 0
    _began: float = -1.0
    _best_per_s: float = 0.0
    _before: int = 0  # window before the growth that is being measured; 0 if none is
    _settles: bool = False
    _factor: float = FIRST_FACTOR
    _pause: int = 0
    _next_pause: int = FIRST_PAUSE

    @property
    def is_new(self) -> bool:
        """True before the first range was received."""
        return self._began < 0

    def arrived(self, nbytes: int, seconds: float, now_s: float) -> None:
        """Record a request.

        Args:
            nbytes: Size of the range in bytes.
            seconds: Time from the request to the last byte of the range.
            now_s: Time in seconds, from any start.
        """
        self._fastest.took(nbytes, seconds, now_s)

    def took(self, nbytes: int, now_s: float, *, was_there: bool, least: int, most: int, weight: int = 1) -> None:
        """Record that the reader needed a range.

        Args:
            nbytes: Size of the range in bytes.
            now_s: Time in seconds, from any start.
            was_there: False if the reader had to wait for the range.
            least: Minimum number of ranges, from the number of objects that are read concurrently.
            most: Maximum number of ranges, from the memory limit.
            weight: Number of ranges that this one counts as.
        """
        if self.is_new:
            self._began = now_s
        self.ranges = min(max(self.ranges, least), max(most, LEAST))
        self._count += 1
        self._weight += weight
        self._nbytes += nbytes
        if was_there:
            self._shrink_if_idle()
        else:
            self._in_time = 0
            self._late += 1
            if self.ranges < min(FREE, most):
                self.ranges = min(FREE, most, 2 * self.ranges)
                self._begin_round(now_s)
                return
        elapsed_s = now_s - self._began
        if self._count >= self.ranges and elapsed_s >= ROUND_S:
            if self._late >= LATE_SHARE * self._count:
                self._judge(self._nbytes / elapsed_s, min(most, self._useful(self._weight / elapsed_s, now_s)))
            self._begin_round(now_s)

    def _begin_round(self, now_s: float) -> None:
        self._began = now_s
        self._count = self._weight = self._late = self._nbytes = 0

    def _useful(self, per_s: float, now_s: float) -> int:
        """Return the largest window that can be useful, from the number of ranges per second."""
        if not self._fastest.is_known:
            return MOST
        return max(FREE, ceil(ROOM * per_s * self._fastest.seconds(now_s)))

    def _shrink_if_idle(self) -> None:
        self._in_time += 1
        if self._in_time >= max(PATIENCE, self.ranges):
            self._in_time = 0
            self._before = 0
            self.ranges = max(LEAST, self.ranges - max(1, int(self.ranges * SHRINK_SHARE)))

    def _judge(self, per_s: float, most: int) -> None:
        """Use the throughput of a round in which the store limited the speed.

        Args:
            per_s: Throughput in bytes per second.
            most: Maximum number of ranges.
        """
        if self._settles:  # this round also received ranges that were requested before the growth
            self._settles = False
            return
        if self._before:
            self._keep_or_undo(per_s)
        self._best_per_s = max(_KEPT * self._best_per_s, per_s)
        self.ranges = min(self.ranges, most)
        if self._pause > 0:
            self._pause -= 1
        elif self.ranges < most:
            self._before, self._settles = self.ranges, True
            self.ranges = min(most, max(self.ranges + 1, int(self.ranges * self._factor)))

    def _keep_or_undo(self, per_s: float) -> None:
        growth = self.ranges / self._before - 1
        if per_s < self._best_per_s * (1 + WORTH * growth):
            self.ranges = self._before
            self._factor = LATER_FACTOR
            self._pause, self._next_pause = self._next_pause, min(MOST_PAUSE, 2 * self._next_pause)
        else:
            self._next_pause = FIRST_PAUSE
        self._before = 0
