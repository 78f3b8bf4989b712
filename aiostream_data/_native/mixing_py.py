"""Choose the inputs of mixture rows in proportion to weights: the pure-Python version of ``mixing.pyx``.

The functions choose inputs by Tijdeman's rule for the chairman assignment problem. The lag of an input is the number of
rows due from this input minus the number of rows emitted from this input. An input is not eligible for the next row if
its lag is too small. The rule chooses the eligible input whose lag would be the first to become too large. With k
inputs and constant shares, all lags stay between -(1 - 1/(2k-2)) and 1 - 1/(2k-2). See Tijdeman, The chairman
assignment problem, Discrete Mathematics 32, 1980.

The time per row grows with the logarithm of the number of inputs: between two rows of an input, its lag grows by its
share per row. So the row from which on the input is eligible, and its deadline, are known in advance.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray


def deal_rows(shares: NDArray[np.int64], lags: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """Return the input number of each of the next ``count`` rows, as int32.

    Args:
        shares: Number of units per row for each input; one row has ``sum(shares)`` units. The share of an inactive
            input is 0. At least one share must be positive.
        lags: For each input, the due rows minus the emitted rows, in the units of ``shares``. Updated in place. The
            lags of active inputs sum to 0.
        count: Number of rows.
    """
    unit = int(shares.sum())
    inputs = np.flatnonzero(shares).tolist()
    if len(inputs) == 1:
        return np.full(count, inputs[0], np.int32)
    least = unit // (2 * len(inputs) - 2)
    share: list[int] = shares.tolist()
    start: list[int] = lags.tolist()  # lag, less the share of each row so far: it changes only for the chosen input

    def eligible_from(number: int) -> int:
        return -((start[number] - least) // share[number]) - 1

    waiting: list[tuple[int, int]] = []  # (row from which on the input is eligible, input)
    ready: list[tuple[int, int]] = []  # (deadline, input)
    for number in inputs:
        heappush(waiting, (eligible_from(number), number))
    which = np.empty(count, np.int32)
    for row in range(count):
        while waiting and waiting[0][0] <= row:
            _, number = heappop(waiting)
            heappush(ready, ((unit - least - start[number]) // share[number], number))
        if not ready:
            raise ValueError("the lags do not sum to 0")
        _, chosen = heappop(ready)  # the lowest input number on a tie
        which[row] = chosen
        start[chosen] -= unit
        heappush(waiting, (eligible_from(chosen), chosen))
    lags[:] = [first + each * count for first, each in zip(start, share, strict=True)]
    return which


def follow_choices(
    choices: NDArray[np.int32], next_row: NDArray[np.int64], stop_row: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Take one row per choice. Stop when a chosen input has no loaded row.

    Args:
        choices: Input number of each row.
        next_row: Index of the next row in the current chunk of each input. Updated in place.
        stop_row: Index after the last row in the current chunk of each input.

    Returns:
        The index of each taken row in its input's current chunk, int64. The result can be shorter than ``choices``.
    """
    rows: list[int] = []
    for number in choices.tolist():
        row = int(next_row[number])
        if row >= stop_row[number]:
            break
        rows.append(row)
        next_row[number] = row + 1
    return np.array(rows, np.int64)
