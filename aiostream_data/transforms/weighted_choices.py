"""Choose the input of each row of a mixture from one vector of weights per row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.transforms.randomness import words

Lags = NDArray[np.float64]
"""For each input, its rows due by weight minus its chosen rows. Shape (inputs,)."""


class ChoicesPlace(NamedTuple):
    """Position before some rows, and their weights, from which the position after any of these rows follows.

    Attributes:
        row: Number of the first row.
        lags: Lags before the first row.
        shares: Weights of these rows with the sum 1, float64 of shape (rows, inputs).
    """

    row: int
    lags: Lags
    shares: NDArray[np.float64]


class ChoicesByWeight:
    """Chooses an input for each row. Resumable.

    Without random draws, each row comes from the input with the largest lag. Inputs of weight 0 do not count. The
    number of rows of each input therefore follows the sum of its shares. With random draws, each choice is independent.

    Args:
        inputs: Number of inputs.
        random_key: Key for random draws: the key and the row number determine the choice. None for no random draws.
    """

    def __init__(self, inputs: int, random_key: np.uint64 | None = None) -> None:
        self._key = random_key
        self.row = 0
        self.lags: Lags = np.zeros(inputs)

    def push(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.int64], ChoicesPlace]:
        """Return the choice for each row, and the position before the rows.

        Args:
            weights: Weights of each row, float64 of shape (rows, inputs): at least 0, and not all 0.
        """
        shares = weights / weights.sum(axis=1, keepdims=True)
        place = ChoicesPlace(self.row, self.lags, shares)
        choices = self._followed(shares) if self._key is None else self._drawn(self._key, shares)
        self.row += len(shares)
        return choices, place

    def lags_after(self, place: ChoicesPlace, rows: int) -> Lags:
        """Return the lags after the first rows that follow a position."""
        if self._key is not None:
            return place.lags
        lags = place.lags
        for share in place.shares[:rows]:
            lags = _after(lags, share)[1]
        return lags

    def _followed(self, shares: NDArray[np.float64]) -> NDArray[np.int64]:
        choices = np.empty(len(shares), np.int64)
        for row, share in enumerate(shares):
            choices[row], self.lags = _after(self.lags, share)
        return choices

    def _drawn(self, key: np.uint64, shares: NDArray[np.float64]) -> NDArray[np.int64]:
        sums = np.cumsum(shares, axis=1)
        drawn = (words(key, self.row, len(shares)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        found: NDArray[np.int64] = (sums <= (drawn * sums[:, -1])[:, np.newaxis]).sum(axis=1)
        return found


def _after(lags: Lags, share: NDArray[np.float64]) -> tuple[int, Lags]:
    """Return the choice for a row, and the lags after it."""
    due = lags + share
    choice = int(np.where(share > 0, due, -np.inf).argmax())
    due[choice] -= 1.0
    return choice, due
