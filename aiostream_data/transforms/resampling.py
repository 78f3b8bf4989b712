"""Probabilities with which rejection sampling keeps rows, so that the classes of kept rows have a target distribution.

A row of class c is kept with the probability ``r[c] / max(r)``, where ``r[i]`` is the target weight of class i divided
by its weight in the input. No other rule that looks at single rows keeps more rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

SMOOTHING: Final = 10
"""Number of rows of each class that the estimate counts in addition to the rows seen, as in tf.data."""

_CELLS: Final = 1 << 16
"""Maximum number of (row, class) pairs that are computed together."""


class KeepingByClass:
    """Computes the probability of each row. Without a known input distribution, the object counts the classes seen.

    The probability of a row depends only on the classes of the rows up to this row, and not on the division into calls.

    Args:
        target: Weight of each class in the output.
        initial: Weight of each class in the input, or None.

    Attributes:
        counts: Number of rows of each class seen so far, int64; None if the input distribution is known.
    """

    def __init__(self, target: Sequence[float], initial: Sequence[float] | None = None) -> None:
        self._target = np.array(target, np.float64)
        self._keep = None if initial is None else _relative(self._target, np.array(initial, np.float64))
        self.counts = np.zeros(len(target), np.int64) if initial is None else None

    def push(self, classes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probability of each row, and count the classes of these rows."""
        if self._keep is not None:
            return self._keep[classes]
        rows = max(1, _CELLS // len(self._target))
        parts = [self._estimated(classes[first : first + rows]) for first in range(0, len(classes), rows)]
        return np.concatenate([np.empty(0), *parts])

    def counts_after(self, before: NDArray[np.int64], classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the counts after rows of these classes, given the counts before these rows."""
        return before + np.bincount(classes, minlength=len(before))

    def _estimated(self, classes: NDArray[np.int64]) -> NDArray[np.float64]:
        assert self.counts is not None
        places = np.arange(len(classes))
        seen = np.zeros((len(classes), len(self._target)), np.int64)
        seen[places, classes] = 1
        np.cumsum(seen, axis=0, out=seen)
        seen += self.counts
        self.counts = seen[-1].copy()
        ratios = self._target / (seen + SMOOTHING)
        found: NDArray[np.float64] = ratios[places, classes] / ratios.max(axis=1)
        return found


def _relative(target: NDArray[np.float64], initial: NDArray[np.float64]) -> NDArray[np.float64]:
    ratios = np.divide(target, initial, out=np.zeros_like(target), where=initial > 0)
    found: NDArray[np.float64] = ratios / ratios.max()
    return found
