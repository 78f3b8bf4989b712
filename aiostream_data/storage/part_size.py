"""Choose the size of range requests to one host or bucket, from the latency and throughput of recent responses.

Each request has a latency, independent of its size, during which the connection is idle. Range sizes are chosen so that
the latency is about a quarter of the time of a request. For distant stores with high throughput, ranges are large. For
stores with low latency, ranges are small, but not so small that the CPU time per request limits the throughput.
Reducing the latency share further has no benefit, because other requests use the bandwidth during the latency, and
larger ranges need more memory. Range sizes are powers of two, so that memory blocks can be reused. Each response at
most doubles or halves the size. This module does no I/O and reads no clock, because callers pass all times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

START: Final = 8 << 20
"""Initial range size. At 20 ms latency and 80 MB/s, this size reaches 90 % of the throughput of larger ranges."""

LEAST: Final = 8 << 20
"""Minimum range size. A range costs about 0.3 ms of CPU time in addition to its bytes, which is 10 % at this size."""

MOST: Final = 16 << 20

WAIT_SHARE: Final = 1 / 4
"""Target ratio of the latency of a request to its total time."""

TELLING_NBYTES: Final = 256 << 10
"""Minimum size in bytes of a body from which throughput is measured. All bytes of a smaller body arrive together."""

TOO_SMALL: Final = 1.5
TOO_LARGE: Final = 1 / 3
"""The range size changes if the target size is more than `TOO_SMALL` times or less than `TOO_LARGE` times the current
size."""

_KEPT: Final = 0.8
"""Factor by which earlier throughput measurements are multiplied when a response is added."""

_NEARER: Final = 0.5
_FARTHER: Final = 0.25
"""Weight of one response in the latency estimate: `_NEARER` if the response lowers the estimate, `_FARTHER` if it
raises it."""


@dataclass(slots=True)
class PartSize:
    """Range size for requests to one host or bucket.

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
            nbytes: Size of the response body in bytes.
            first_byte_s: Seconds from the request to the first byte.
            body_s: Seconds from the first byte to the last.
            in_flight: Number of requests in flight, including this one. With many requests in flight, a late response
                has less weight, because this response also waited for other responses.
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
        """Double or halve the range size if the size differs greatly from ``wanted``."""
        if wanted > TOO_SMALL * self.nbytes:
            self.nbytes = min(MOST, 2 * self.nbytes)
        elif wanted < TOO_LARGE * self.nbytes:
            self.nbytes = max(LEAST, self.nbytes // 2)
