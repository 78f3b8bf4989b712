"""Pure-Python twin of the native kernels for saved states."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_PLANES: Final = (8, 4, 2, 1)


def above_lowest(column: NDArray[np.int64]) -> tuple[int, NDArray[np.uint64], int]:
    """Return the lowest value of a column, the offset of each value from it as uint64, and the largest offset."""
    low = int(column.min()) if len(column) else 0
    offsets = column.astype(np.uint64) - np.uint64(low % 2**64)
    return low, offsets, int(offsets.max(initial=0))


def above_lowest_of_groups(
    column: NDArray[np.int64], groups: NDArray[np.uint64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64], int]:
    """Return the lowest value of each group, the offset of each value from it as uint64, and the largest offset.

    The value of a group without rows is the highest of the column.

    Args:
        column: int64 of shape (rows,).
        groups: Number of the group of each row, uint64 of shape (rows,), less than ``count``.

    Raises:
        ValueError: ``groups`` has another length, or a number that is too large.
    """
    check_groups(len(column), groups, count)
    group_of_row = groups.astype(np.intp)
    lows = np.full(count, column.max() if len(column) else 0, np.int64)
    np.minimum.at(lows, group_of_row, column)
    offsets = (column - lows[group_of_row]).view(np.uint64)
    return lows, offsets, int(offsets.max(initial=0))


def planes_of(offsets: NDArray[np.uint64], width: int) -> bytes:
    """Return the low ``width`` bytes of all offsets as planes of 8, 4, 2 and 1 bytes per row, in this order.

    The sum of the sizes of the planes is ``width``, and the planes with the low bytes come first. A plane has the bytes
    of its row in little-endian order.

    Raises:
        ValueError: ``width`` is not from 0 to 8.
    """
    check_width(width)
    planes, below = [], 0
    for nbytes in _PLANES:
        if width & nbytes:
            planes.append((offsets >> np.uint64(8 * below)).astype(f"<u{nbytes}").tobytes())
            below += nbytes
    return b"".join(planes)


def json_bytes(value: Any) -> bytes:
    """Return ``value`` as JSON text with sorted keys.

    Raises:
        TypeError, ValueError, RecursionError: The value cannot be written as JSON.
    """
    return json.dumps(value, sort_keys=True).encode()


def check_groups(rows: int, groups: NDArray[np.uint64], count: int) -> None:
    """Raise ValueError unless ``groups`` has one group number below ``count`` for each of ``rows`` rows."""
    found = np.asarray(groups)
    if len(found) != rows or count < 0 or int(found.max(initial=0)) >= max(count, 1):
        raise ValueError(f"each of {rows} rows needs the number of one of {count} groups")


def check_width(width: int) -> None:
    """Raise ValueError unless offsets can have this number of bytes."""
    if not 0 <= width <= 8:
        raise ValueError(f"width must be from 0 to 8, got {width}")
