"""Deal turns to the inputs of a mixture, and take their rows: the clear twin of ``mixing.pyx``.

Turns are dealt by Tijdeman's rule for the chairman assignment problem. An input's lag is the rows it
should have had minus those it had. Among the inputs whose lag is large enough that a row would not put
them too far ahead, the one that would be the first to fall too far behind is next. With k inputs, no lag
ever leaves the range from -(1 - 1/(2k-2)) to 1 - 1/(2k-2) while the shares stay the same.
(R. Tijdeman, The chairman assignment problem, Discrete Mathematics 32, 1980.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def deal_rows(shares: NDArray[np.int64], lags: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """Return which input the next ``count`` rows come from, as int32.

    Args:
        shares: What each input is due per row, in units of which a row has ``sum(shares)``; 0 for
            inputs that take no part, at least one above 0.
        lags: Rows due minus rows had, in the same units; updated. Those of the inputs that take part
            sum to 0.
    """
    unit = int(shares.sum())
    inputs = np.flatnonzero(shares).tolist()
    if len(inputs) == 1:
        return np.full(count, inputs[0], np.int32)
    least = unit // (2 * len(inputs) - 2)
    share: list[int] = shares.tolist()
    lag: list[int] = lags.tolist()

    def deadline(number: int, now: int) -> int:
        return now + (unit - least - lag[number]) // share[number]

    deadlines = {number: deadline(number, 0) for number in inputs}
    which = np.empty(count, np.int32)
    for row in range(count):
        for number in inputs:
            lag[number] += share[number]
        ready = [number for number in inputs if lag[number] >= least]
        chosen = min(ready, key=deadlines.__getitem__)  # the first of those that are equal
        which[row] = chosen
        lag[chosen] -= unit
        deadlines[chosen] = deadline(chosen, row + 1)
    lags[:] = lag
    return which


def follow_choices(
    choices: NDArray[np.int32], next_row: NDArray[np.int64], stop_row: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the rows that the choices take, until one falls on an input that has none loaded.

    Args:
        choices: Input per row.
        next_row, stop_row: Rows of the inputs' current chunks that are still to be given; the first is
            updated.

    Returns:
        int64 row in the input's chunk, per choice that could be followed.
    """
    rows: list[int] = []
    for number in choices.tolist():
        row = int(next_row[number])
        if row >= stop_row[number]:
            break
        rows.append(row)
        next_row[number] = row + 1
    return np.array(rows, np.int64)
