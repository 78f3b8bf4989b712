"""Read many varints, which are integers of variable length in the format of protocol buffers, with NumPy.

A varint has seven bits in each byte, the lowest first. All bytes but the last have the highest bit. Negative numbers,
which need ten bytes, are treated as damage.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_MAX_NBYTES: Final = 9
"""Maximum size of a varint with 63 bits."""

DAMAGED: Final = -1
"""Stands for a varint that is cut short or too long."""


def varints_at(values: NDArray[np.uint8], starts: Numbers, stops: Numbers) -> tuple[Numbers, Numbers]:
    """Read one varint at each of some places.

    Args:
        values: Bytes.
        starts: Index of the first byte of each varint, int64.
        stops: Index after the last byte that each varint may have, int64; at most the number of bytes.

    Returns:
        The numbers, or ``DAMAGED``, and the index after each varint; both int64.
    """
    numbers = np.zeros(len(starts), np.int64)
    ends = starts.copy()
    rows = np.arange(len(starts))
    for place in range(_MAX_NBYTES):
        rows = rows[ends[rows] < stops[rows]]
        if not len(rows):
            break
        found = values[ends[rows]].astype(np.int64)
        numbers[rows] |= (found & 0x7F) << 7 * place
        ends[rows] += 1
        rows = rows[found >= 0x80]
    is_complete = ends > starts
    is_complete[is_complete] = values[ends[is_complete] - 1] < 0x80
    numbers[~is_complete] = DAMAGED
    return numbers, ends


def varints_of(values: NDArray[np.uint8]) -> tuple[Numbers, Numbers]:
    """Read consecutive varints.

    Returns:
        The numbers, or ``DAMAGED``, and the index after each varint; both int64. Bytes after the last complete varint
        are left out.
    """
    ends = np.flatnonzero(values < 0x80) + 1
    if len(ends) == len(values):
        return values.astype(np.int64), ends
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    return varints_at(values, starts, ends)[0], ends
