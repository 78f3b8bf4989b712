"""Decide when the inputs of a mixture read their next chunk.

How this works. An input starts when one of the next :data:`BEGIN_ROWS` rows is due from it. After that, it reads one
chunk ahead, but not at once: a chunk that waits for its turn takes memory. The next chunk is read when half of the
current chunk was used, or when the current chunk is used up within the next :data:`AHEAD_ROWS` rows of the mixture. So
the inputs of a small mixture read ahead at once, and those of a large mixture hold one and a half chunks on average.

At most :data:`INPUTS_AT_ONCE` inputs read at the same time. The inputs of a mixture with equal weights all have used
half of their chunks at the same row, and would otherwise start thousands of reads at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

BEGIN_ROWS: Final = 64
"""An input of a large mixture starts when one of this number of next rows is due from it."""

AHEAD_ROWS: Final = 32768
"""Number of rows of a mixture that the inputs read ahead, unless a chunk of each input has more rows.

At 150,000 rows per second, a chunk then has a fifth of a second to arrive.
"""

INPUTS_AT_ONCE: Final = 64
"""Maximum number of inputs that read a chunk before the mixture waits for it.

With a latency of 100 milliseconds, the mixture receives 640 chunks per second.
"""

LOOK_ROWS: Final = 1024
"""Number of rows of a mixture after which the inputs are compared again. Comparing takes time for each input."""


class RowOrder(Protocol):
    """Order of a mixture's rows."""

    def upcoming(self, rows: int) -> NDArray[np.int32]:
        """Return the inputs of the next rows, as far as they are chosen, at most of ``rows`` rows."""

    def running_low(self, rows: int) -> NDArray[np.bool_]:
        """Return a mask of the inputs that have emitted half of their chunk, or run out of rows in the next ``rows``.

        Inputs that have not loaded a chunk do not count.
        """


class InputsAhead:
    """Decides which inputs read a chunk now. Does no I/O.

    Args:
        inputs: Number of inputs.
        is_ready: Function that returns True if an input has a chunk that was not loaded, or has ended.
    """

    def __init__(self, inputs: int, is_ready: Callable[[int], bool]) -> None:
        self._is_ready = is_ready
        self._is_asked = np.zeros(inputs, np.bool_)  # the input was asked for its next chunk, or for its first one
        self._has_begun = np.zeros(inputs, np.bool_)
        self._reading: list[int] = []
        self._rows_until_look = 0

    def loaded(self, slot: int) -> None:
        """Record that an input has delivered the chunk that it was asked for."""
        self._is_asked[slot] = False
        self._has_begun[slot] = True
        self._rows_until_look = 0

    def after(self, rows: int, order: RowOrder) -> list[int]:
        """Return the inputs to ask for their next chunk, after the mixture emitted another ``rows`` rows.

        No input is returned a second time before :meth:`loaded` was called for it.
        """
        self._rows_until_look -= rows
        if self._rows_until_look > 0:
            return []
        self._rows_until_look = LOOK_ROWS
        self._reading = [slot for slot in self._reading if not self._is_ready(slot)]
        room = INPUTS_AT_ONCE - len(self._reading)
        if room <= 0:
            return []
        first = np.unique(order.upcoming(BEGIN_ROWS))
        first = first[~self._has_begun[first] & ~self._is_asked[first]]
        low = np.flatnonzero(order.running_low(AHEAD_ROWS) & ~self._is_asked)
        wanted = np.concatenate([first, low])[:room]
        self._is_asked[wanted] = self._has_begun[wanted] = True
        found: list[int] = wanted.tolist()
        self._reading += found
        return found
