"""Learn a good range size for one lane from the latency and throughput of recent answers.

Each request has a latency, independent of its size, during which its connection is idle. Ranges are sized so that this
latency is about a quarter of the total time of a range. Low-latency stores get small ranges, which arrive quickly and
stay in the processor's cache. Distant stores with high throughput get large ranges. A smaller latency share would not
pay off: other requests use the bandwidth meanwhile, and large ranges need more new memory. Sizes are powers of two and
change by one step per answer, so that memory blocks can be reused. This module does no I/O and reads no clock: callers
pass all times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

START: Final = 4 << 20
"""Initial range size. At 20 ms latency and 80 MB/s, it reaches 90 % of the throughput of larger ranges."""

LEAST: Final = 1 << 20
MOST: Final = 32 << 20

WAIT_SHARE: Final = 1 / 4
"""Target ratio of latency to the total time of a range."""

TELLING_NBYTES: Final = 256 << 10
"""Minimum body size for a throughput sample. Smaller bodies arrive together with their first byte."""

TOO_SMALL: Final = 1.5
TOO_LARGE: Final = 1 / 3
"""The range size changes if its target is above `TOO_SMALL` times or below `TOO_LARGE` times the current size."""

_KEPT: Final = 0.8
"""Weight of the previous throughput samples when an answer is added."""

_NEARER: Final = 0.5
_FARTHER: Final = 0.25
"""Weights of one answer in the latency estimate: `_NEARER` lowers the estimate, `_FARTHER` raises it."""


@dataclass(slots=True)
class PartSize:
    """Range size of one lane.

    Attributes:
        nbytes: Recommended range size in bytes.
    """

    nbytes: int = START
    _first_byte_s: float = 0.0
    _body_nbytes: float = 0.0
    _body_s: float = 0.0

    def took(self, nbytes: int, first_byte_s: float, body_s: float, in_flight: int = 1) -> None:
        """Record an answer.

        Args:
            nbytes: Size of the body.
            first_byte_s: Seconds from the request to the first byte.
            body_s: Seconds from the first byte to the last.
            in_flight: Number of requests in flight, including this one. A late answer among many counts less, because
                it also waited for the others.
        """
        self._learn_wait(first_byte_s, in_flight)
        if nbytes < TELLING_NBYTES:
            return
        self._body_nbytes = _KEPT * self._body_nbytes + nbytes
        self._body_s = _KEPT * self._body_s + body_s
        if 2 * nbytes > self.nbytes:  # the speed of much smaller ranges predicts little
            self._step(self._wanted_nbytes())

    def _learn_wait(self, first_byte_s: float, in_flight: int) -> None:
        if not self._first_byte_s:
            self._first_byte_s = first_byte_s
            return
        share = _NEARER if first_byte_s < self._first_byte_s else _FARTHER / max(1, in_flight)
        self._first_byte_s += share * (first_byte_s - self._first_byte_s)

    def _wanted_nbytes(self) -> float:
        wait_s = self._first_byte_s * (1 / WAIT_SHARE - 1)
        return MOST if wait_s * self._body_nbytes >= MOST * self._body_s else wait_s * self._body_nbytes / self._body_s

    def _step(self, wanted: float) -> None:
        """Change the size by one power of two if it is far from ``wanted``."""
        if wanted > TOO_SMALL * self.nbytes:
            self.nbytes = min(MOST, 2 * self.nbytes)
        elif wanted < TOO_LARGE * self.nbytes:
            self.nbytes = max(LEAST, self.nbytes // 2)
