"""How large the ranges should be that a part of a store is asked for: found by what the last ones took.

How this works. A request costs the time until its answer begins, whatever its size, and a connection carries nothing
meanwhile. So parts are as large as it takes for that wait to be about a quarter of a part's time: small ones where
answers begin at once, because they stay in the processor's cache and are soon there; large ones at the end of a long
line that carries much. A smaller share would not pay: other requests fill the line meanwhile, and large parts cost more
fresh memory. Sizes go by powers of two, one step with each part, so that blocks of memory fit the next part as well.
Pure: told times, never asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

START: Final = 4 << 20
"""Size as long as nothing is known; at 20 ms and 80 MB/s, nine tenths of what a larger one brings."""

LEAST: Final = 1 << 20
MOST: Final = 32 << 20

WAIT_SHARE: Final = 1 / 4
"""Share of a part's time that may pass before it begins to arrive."""

TELLING_NBYTES: Final = 256 << 10
"""Smaller bodies say nothing about how fast bytes come: they are there with the first of them."""

TOO_SMALL: Final = 1.5
TOO_LARGE: Final = 1 / 3
"""A size is left when another is wanted that is so many times as large; in between, it stays."""

_KEPT: Final = 0.8
"""What is known of the rate counts so much beside one more part."""

_NEARER: Final = 0.5
_FARTHER: Final = 0.25
"""How much one answer changes what is known of the wait: down, and up where it was alone on its way."""


@dataclass(slots=True)
class PartSize:
    """The state of one part of a store.

    Attributes:
        nbytes: Size that parts should have now.
    """

    nbytes: int = START
    _first_byte_s: float = 0.0
    _body_nbytes: float = 0.0
    _body_s: float = 0.0

    def took(self, nbytes: int, first_byte_s: float, body_s: float, in_flight: int = 1) -> None:
        """Record an answer.

        Args:
            nbytes: Of its body.
            first_byte_s: Until it began.
            body_s: From then until it was complete.
            in_flight: Requests on their way, this one included. An answer that came late among many has waited for
                others as well, and says little about the line.
        """
        self._learn_wait(first_byte_s, in_flight)
        if nbytes < TELLING_NBYTES:
            return
        self._body_nbytes = _KEPT * self._body_nbytes + nbytes
        self._body_s = _KEPT * self._body_s + body_s
        if 2 * nbytes > self.nbytes:  # what smaller parts take says little about larger ones
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
        """Go one step, where the size is far from what it should be."""
        if wanted > TOO_SMALL * self.nbytes:
            self.nbytes = min(MOST, 2 * self.nbytes)
        elif wanted < TOO_LARGE * self.nbytes:
            self.nbytes = max(LEAST, self.nbytes // 2)
