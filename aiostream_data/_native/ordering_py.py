"""Interleave rows of several streams, block by block: the pure-Python twin of ``ordering.pyx``.

The rules are those of tf.data's interleave kernel. Each slot emits up to ``block_length`` rows before the next slot.
The end of a stream is detected when the row after its last one is due; the slot is then emptied. An empty slot requests
a stream when its turn comes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EMPTY, OPEN, ENDED = 0, 1, 2
"""Status of a slot. ENDED: no further chunk follows, but the end of the stream was not detected yet."""

WAIT_NOTHING, WAIT_STREAM, WAIT_ROWS, WAIT_FINISHED = 0, 1, 2, 3
"""Reason why an order ended: enough rows; a slot needs a stream; a slot needs rows; the order is complete."""

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
    """Return the longest possible order of loaded rows, and the reason why it ended.

    Args:
        position: Current slot, and rows already taken in its block. Updated in place.
        status: EMPTY, OPEN or ENDED for each slot. Updated in place.
        next_row: Next row in the current chunk of each slot. Updated in place.
        stop_row: End of the current chunk of each slot (exclusive).
        block_length: Rows to take from a slot before the next slot; at least 1.
        deterministic: If False, skip slots without rows while another slot has some.
        more_streams: False if empty slots stay empty.
        max_rows: Maximum number of rows.

    Returns:
        The slot (int32) and the index in the slot's chunk (int64) of each row; a WAIT constant; its slot or -1.
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
