"""Interleave rows of several streams, block by block: the pure-Python version of ``ordering.pyx``.

The functions follow the rules of tf.data's interleave kernel. The kernel has several slots, each with one open stream.
Each slot emits up to ``block_length`` rows before the next slot. The kernel detects the end of a stream only when the
row after the stream's last row is due. After the end of its stream, a slot is empty. When it is the turn of an empty
slot, the slot requests a new stream.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EMPTY, OPEN, ENDED = 0, 1, 2
"""Status of a slot.

ENDED: the stream has no further chunk, but the kernel has not detected the end of the stream yet.
"""

WAIT_NOTHING, WAIT_STREAM, WAIT_ROWS, WAIT_FINISHED = 0, 1, 2, 3
"""Reason why a row order ended: enough rows; a slot needs a stream; a slot needs rows; or all streams have ended."""

Step = tuple[NDArray[np.int32], NDArray[np.int64], int, int]


def interleave_rows(
    position: NDArray[np.int64],
    status: NDArray[np.uint8],
    next_row: NDArray[np.int64],
    stop_row: NDArray[np.int64],
    block_length: int,
    deterministic: bool,
    more_streams: bool,
    max_rows: int,
) -> Step:
    """Return the longest possible order of the loaded rows, and the reason why this order ended.

    Args:
        position: Current slot, and number of rows already taken in the slot's block. Updated in place.
        status: Status of each slot: EMPTY, OPEN or ENDED. Updated in place.
        next_row: Index of the next row in the current chunk of each slot. Updated in place.
        stop_row: Index after the last row in the current chunk of each slot.
        block_length: Number of rows to take from a slot before moving to the next slot; at least 1.
        deterministic: If False, skip slots without loaded rows while another slot has rows.
        more_streams: False if no more streams follow, so empty slots stay empty.
        max_rows: Maximum number of rows in the returned order.

    Returns:
        The slot of each row (int32), the index of each row in its slot's chunk (int64), a WAIT constant, and the slot
        to which the constant applies (or -1).
    """
    which: list[int] = []
    rows: list[int] = []
    slot, taken = position.tolist()
    waiting, waited_slot, passed = WAIT_NOTHING, -1, 0
    while len(which) < max_rows:
        if next_row[slot] < stop_row[slot]:
            which.append(slot)
            rows.append(int(next_row[slot]))
            next_row[slot] += 1
            passed, taken = 0, taken + 1
            if taken < block_length:
                continue
        elif status[slot] == ENDED:
            status[slot] = EMPTY
            passed = 0
        elif status[slot] == EMPTY and more_streams:
            waiting, waited_slot = WAIT_STREAM, slot
            break
        elif not status.any():
            waiting = WAIT_FINISHED
            break
        elif status[slot] == OPEN and (deterministic or passed == len(status)):
            waiting, waited_slot = WAIT_ROWS, slot
            break
        else:  # this slot has no rows (yet), but another slot may have some
            passed = min(passed + 1, len(status))
        slot, taken = (slot + 1) % len(status), 0
    position[:] = slot, taken
    return np.array(which, np.int32), np.array(rows, np.int64), waiting, waited_slot
