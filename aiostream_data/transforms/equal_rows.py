"""Give a stream an exact number of rows, by dropping rows at the end or repeating the last rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import RankError
from aiostream_data.ranks.world import Tail

REPEATED: Final = 64
"""Maximum number of rows at the end of a stream that are repeated in turn to extend the stream."""


def window_of(own: int, rows: int, tail: Tail) -> int:
    """Return how many of the last rows to buffer, to be able to extend a stream of ``own`` rows to ``rows`` rows."""
    if tail == "drop" or own >= rows:
        return 0
    return min(own, 1 if tail == "pad" else REPEATED)


class FillOrder:
    """Order that extends a stream by repeating its last rows in turn. Resumable.

    A resumed run rereads up to ``window`` rows before its position, so that it can repeat these rows later. The resumed
    run does not emit the reread rows again.

    Args:
        window: Number of most recent rows to buffer.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.again = 0
        """Number of rows before its position that a resumed run rereads."""
        self._came = 0
        self._filled_before = 0
        self._filled = 0

    def push(self, count: int) -> slice:
        """Return which of the ``count`` incoming rows to emit, as a slice. The caller must buffer the last ``window``
        rows.
        """
        before, self._came = self._came, self._came + count
        return slice(min(count, max(0, self.again - before)), count)

    def fill(self, count: int, kept: int) -> NDArray[np.int64]:
        """Return which of the last ``kept`` rows to emit as the next ``count`` repeated rows."""
        first, self._filled = self._filled, self._filled + count
        return np.arange(first, first + count) % kept

    @property
    def filled(self) -> int:
        """Number of repeated rows emitted since the start of the stream."""
        return self._filled

    def input_rows(self, given: int) -> int:
        """Return the number of the input row at which to resume after this run has emitted ``given`` rows."""
        return self._place(given)[0]

    def state(self, given: int) -> dict[str, Any]:
        """Return the position after ``given`` emitted rows of this run, as JSON-compatible data."""
        _, again, filled = self._place(given)
        return {"again": again, "filled": filled}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`."""
        self.again = state["again"]
        self._filled = self._filled_before = state["filled"]
        self._came = 0

    def _place(self, given: int) -> tuple[int, int, int]:
        used = min(self.again + given, max(self.again, self._came))
        again = min(self.window, used)
        return used - again, again, self._filled_before + self.again + given - used


def check_had(given: int, own: int, rows: int) -> None:
    """Check the number of rows at the end of a stream.

    Raises:
        RankError: The stream has fewer rows than the user's argument ``counts=`` states.
    """
    if given < min(own, rows):
        raise RankError(
            f"cannot fill up this rank: its files have {own} rows according to counts=, but {given} rows were read. "
            "Pass the correct row count of each file as counts=."
        )
