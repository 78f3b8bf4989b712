"""Interleave rows of several streams, and describe chosen rows: the pure-Python version of ``ordering.pyx``.

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

Step = tuple[NDArray[np.int32], NDArray[np.int64], bool, int, int]


def interleave_rows(
    position: NDArray[np.int64],
    status: NDArray[np.uint8],
    next_row: NDArray[np.int64],
    stop_row: NDArray[np.int64],
    source: NDArray[np.int64],
    ready: NDArray[np.int64],
    block_length: int,
    deterministic: bool,
    more_streams: bool,
    max_rows: int,
) -> Step:
    """Return the longest possible order of the loaded rows, and the reason why this order ended.

    *Ready* streams have all their rows in memory. An empty slot opens the next ready stream without a request.

    Args:
        position: Current slot, rows already taken in its block, and number of ready streams opened. Updated in place.
        status: EMPTY, OPEN or ENDED for each slot. Updated in place.
        next_row: Next row of each slot: an index in its current chunk or in its ready stream. Updated in place.
        stop_row: End of the current chunk or of the ready stream in each slot (exclusive). Updated in place.
        source: Number of the ready stream in each slot, or -1 for a slot with its own chunk. Updated in place.
        ready: Shape (streams, 3). For each ready stream: key of its chunk, index of its first row, number of rows.
        block_length: Rows to take from a slot before the next slot; at least 1.
        deterministic: If False, skip slots without rows while another slot has some.
        more_streams: False if no streams follow the ready ones.
        max_rows: Maximum number of rows.

    Returns:
        The key of each row's chunk (int32), which is the slot if the slot has its own chunk; the index of each row in
        the chunk (int64); True if these are consecutive rows of one chunk; a WAIT constant; its slot or -1. The arrays
        may be read-only.
    """
    which: list[int] = []
    rows: list[int] = []
    slot, taken, opened = position.tolist()
    waiting, waited_slot, passed = WAIT_NOTHING, -1, 0
    while len(which) < max_rows:
        if next_row[slot] < stop_row[slot]:
            key, first, _ = ready[source[slot]].tolist() if source[slot] >= 0 else (slot, 0, 0)
            which.append(key)
            rows.append(first + int(next_row[slot]))
            next_row[slot] += 1
            passed, taken = 0, taken + 1
            if taken < block_length:
                continue
        elif status[slot] == ENDED:
            status[slot], source[slot] = EMPTY, -1
            passed = 0
        elif status[slot] == EMPTY and opened < len(ready):
            status[slot], source[slot] = ENDED, opened
            next_row[slot], stop_row[slot] = 0, ready[opened, 2]
            opened += 1
            continue
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
    position[:] = slot, taken, opened
    is_run = bool(rows) and len(set(which)) == 1 and rows == list(range(rows[0], rows[0] + len(rows)))
    return np.array(which, np.int32), np.array(rows, np.int64), is_run, waiting, waited_slot


# -- chosen rows: for each row the number of its chunk, and its index in this chunk


def first_breaks(which: NDArray[np.int32], rows: NDArray[np.int64], most: int) -> list[int]:
    """Return where runs of consecutive rows of one chunk begin behind the first run, at most ``most`` positions.

    Args:
        which: Number of the chunk of each row.
        rows: Index of each row in its chunk, as many as in ``which``.
    """
    _check_lengths(which, rows)
    is_break = (which[1:] != which[:-1]) | (rows[1:] != rows[:-1] + 1)
    found: list[int] = (np.flatnonzero(is_break)[:most] + 1).tolist()
    return found


def distinct(which: NDArray[np.int32], numbers: int) -> list[int]:
    """Return the distinct numbers in ``which``, ascending.

    Raises:
        IndexError: A number is negative, or is not below ``numbers``.
    """
    found: list[int] = np.unique(which).tolist()
    if found and not 0 <= found[0] <= found[-1] < numbers:
        raise IndexError(f"a number is outside 0 to {numbers - 1}")
    return found


def renumbered(which: NDArray[np.int32], table: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return ``table[which[i]]`` for each i.

    Raises:
        IndexError: A number is negative, or is outside the table.
    """
    distinct(which, len(table))
    return table[which]


def ids_of_runs(
    firsts: NDArray[np.int64],
    steps: NDArray[np.int64],
    counts: NDArray[np.int64],
    which: NDArray[np.int32],
    rows: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the numbers of row ``rows[i]`` of run ``which[i]`` for each i, int64 of shape (rows, columns).

    Args:
        firsts: Numbers of the first row of each run, of shape (runs, columns).
        steps: For each of these numbers, the difference from one row to the next.
        counts: Number of rows of each run.

    Raises:
        IndexError: A run, or a row of a run, does not exist.
        ValueError: The arrays differ in length.
    """
    _check_lengths(which, rows)
    if steps.shape != firsts.shape or len(counts) != len(firsts):
        raise ValueError("the arrays of the runs differ in length")
    distinct(which, len(firsts))
    if ((rows < 0) | (rows >= counts[which])).any():
        raise IndexError("a row of a run does not exist")
    return firsts[which] + steps[which] * rows[:, None]


def _check_lengths(which: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
    if len(which) != len(rows):
        raise ValueError(f"{len(which)} numbers of chunks and {len(rows)} of rows")
