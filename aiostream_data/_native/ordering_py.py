"""Take rows from a cycle of streams, block by block: the clear twin of ``ordering.pyx``.

The rules are those of tf.data's interleave kernel: up to ``block_length`` rows from a slot, then on to
the next; a stream's end is noticed when a row is asked of it after its last, which empties the slot
and moves on; an empty slot asks for a stream when the cycle comes round to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EMPTY, OPEN, ENDED = 0, 1, 2
"""Status of a slot. ENDED: no further chunk comes, and the end has not been noticed yet."""

WAIT_NOTHING, WAIT_STREAM, WAIT_ROWS, WAIT_FINISHED = 0, 1, 2, 3
"""Why an order stopped: enough rows; a slot wants a stream; a slot wants rows; all is given."""

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
    """Return the longest order that can be given now, and why it stopped.

    Args:
        position: (slot, rows taken of its block); updated.
        status: One of EMPTY, OPEN, ENDED per slot; updated.
        next_row, stop_row: Rows of the slot's current chunk that are still to be given; the first is
            updated.
        block_length: Rows to take from a slot before moving on; at least 1.
        deterministic: False passes over slots that lack rows while another slot has some.
        more_streams: False when empty slots stay empty.
        max_rows: Most rows to give.

    Returns:
        int32 slot and int64 row in the slot's chunk, per row given; a WAIT constant; its slot or -1.
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
        else:  # nothing comes here, or nothing yet and another slot may have rows
            passed = min(passed + 1, len(status))
        slot, taken = (slot + 1) % len(status), 0
    position[:] = slot, taken
    return np.array(which, np.int32), np.array(rows, np.int64), waiting, waited_slot
