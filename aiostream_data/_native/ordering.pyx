# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Interleave rows of several streams, and describe chosen rows; ``ordering_py`` is the pure-Python twin."""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

cdef enum:
    EMPTY = 0
    OPEN = 1
    ENDED = 2

cdef enum:
    WAIT_NOTHING = 0
    WAIT_STREAM = 1
    WAIT_ROWS = 2
    WAIT_FINISHED = 3

cdef enum:
    SHARED_ROWS = 65536  # of the longest chunks

# Read-only. A run is a slice of these arrays: filling new pages takes longer than the rest of a call.
cdef object _FIRST_SLOT = np.zeros(SHARED_ROWS, np.int32)
cdef object _ROWS = np.arange(SHARED_ROWS)
_FIRST_SLOT.setflags(write=False)
_ROWS.setflags(write=False)


def interleave_rows(
    int64_t[::1] position,
    uint8_t[::1] status,
    int64_t[::1] next_row,
    int64_t[::1] stop_row,
    int64_t[::1] source,
    const int64_t[:, ::1] ready,
    int64_t block_length,
    bint deterministic,
    bint more_streams,
    int64_t max_rows,
):
    """Return the longest possible order of loaded rows, whether it is one run, and the reason why it ended."""
    cdef int waiting
    cdef int64_t waited_slot = -1
    cdef Py_ssize_t slots = status.shape[0], k, queued = ready.shape[0]
    if next_row.shape[0] != slots or stop_row.shape[0] != slots or source.shape[0] != slots:
        raise ValueError("the arrays of the slots differ in length")
    if position.shape[0] != 3 or ready.shape[1] != 3:
        raise ValueError("position and ready must have 3 columns")
    cdef int64_t slot = position[0], taken = position[1], opened = position[2], at, run, i, first, key
    if slot < 0 or slot >= slots or block_length < 1:
        raise ValueError(f"slot {slot} of {slots}, block length {block_length}")
    if opened < 0 or opened > queued:
        raise ValueError(f"stream {opened} of {queued} ready streams")
    cdef int64_t room = 0, unfinished = 0, runs = 0
    max_rows = max(max_rows, 0)
    for k in range(slots):
        if next_row[k] < 0:
            raise ValueError(f"the next row of slot {k} is {next_row[k]}")
        if source[k] >= queued:
            raise ValueError(f"slot {k} holds stream {source[k]} of {queued} ready streams")
        if status[k] != EMPTY:
            unfinished += 1
        if stop_row[k] > next_row[k]:
            room += min(stop_row[k] - next_row[k], max_rows - room)
    # Usually all rows come from the current chunk of one slot.
    at = next_row[slot]
    if slots == 1 and max_rows > 0 and at < stop_row[0] <= SHARED_ROWS and source[0] < 0 and opened == queued:
        run = min(stop_row[0] - at, max_rows)
        if taken < block_length and (run == max_rows or status[0] == ENDED or deterministic):
            next_row[0] = at + run
            position[1] = (taken + run) % block_length
            waiting, waited_slot = WAIT_NOTHING, -1
            if run < max_rows and status[0] == OPEN:
                waiting, waited_slot = WAIT_ROWS, 0
            elif run < max_rows:
                status[0] = EMPTY
                position[1] = 0
                waiting, waited_slot = (WAIT_STREAM, 0) if more_streams else (WAIT_FINISHED, -1)
            return _FIRST_SLOT[:run], _ROWS[at : at + run], True, waiting, waited_slot
    if max_rows > 0 and at < stop_row[slot] <= SHARED_ROWS and source[slot] < 0 and taken < block_length:
        run = min(min(block_length - taken, stop_row[slot] - at), max_rows)
        if run == max_rows or (deterministic and status[slot] == OPEN and taken + run < block_length):
            next_row[slot] = at + run
            position[0] = slot
            position[1] = taken + run
            if taken + run == block_length:
                position[0] = slot + 1 if slot + 1 < slots else 0
                position[1] = 0
            which_out = np.full(run, slot, np.int32) if slot else _FIRST_SLOT[:run]
            waiting = WAIT_NOTHING if run == max_rows else WAIT_ROWS
            return which_out, _ROWS[at : at + run], True, waiting, -1 if run == max_rows else slot
    for k in range(opened, queued):
        if room == max_rows:
            break
        room += min(max(ready[k, 2], 0), max_rows - room)
    which_out = np.empty(room, np.int32)
    rows_out = np.empty(room, np.int64)
    cdef int32_t[::1] which = which_out
    cdef int64_t[::1] rows = rows_out
    cdef int64_t given = 0, passed = 0
    waiting = WAIT_NOTHING
    # Keep the GIL: a call takes microseconds, but reacquiring the GIL can take milliseconds.
    while given < max_rows:
        at = next_row[slot]
        if at < stop_row[slot]:
            run = min(min(block_length - taken, stop_row[slot] - at), max_rows - given)
            run = max(run, 1)
            key, first = slot, at
            if source[slot] >= 0:
                key, first = ready[source[slot], 0], ready[source[slot], 1] + at
            for i in range(run):
                which[given + i] = <int32_t>key
                rows[given + i] = first + i
            if runs == 0 or which[given - 1] != key or rows[given - 1] != first - 1:
                runs += 1
            next_row[slot] = at + run
            given += run
            taken += run
            passed = 0
            if taken < block_length:
                continue
        elif status[slot] == ENDED:
            status[slot] = EMPTY
            source[slot] = -1
            unfinished -= 1
            passed = 0
        elif status[slot] == EMPTY and opened < queued:
            status[slot] = ENDED
            unfinished += 1
            source[slot] = opened
            next_row[slot], stop_row[slot] = 0, max(ready[opened, 2], 0)
            opened += 1
            continue
        elif status[slot] == EMPTY and more_streams:
            waiting, waited_slot = WAIT_STREAM, slot
            break
        elif unfinished == 0:
            waiting = WAIT_FINISHED
            break
        elif status[slot] == OPEN and (deterministic or passed == slots):
            waiting, waited_slot = WAIT_ROWS, slot
            break
        else:
            passed = min(passed + 1, slots)
        slot = slot + 1 if slot + 1 < slots else 0
        taken = 0
    position[0] = slot
    position[1] = taken
    position[2] = opened
    return which_out[:given], rows_out[:given], runs == 1, waiting, waited_slot


# -- chosen rows: for each row the number of its chunk, and its index in this chunk ------------------
# All kernels keep the GIL: they take microseconds, and several calls follow each other for one chunk.


def first_breaks(const int32_t[:] which, const int64_t[:] rows, Py_ssize_t most):
    """Return where runs of consecutive rows of one chunk begin behind the first; see ``ordering_py.first_breaks``."""
    _check_lengths(which.shape[0], rows.shape[0])
    cdef Py_ssize_t i
    breaks = []
    for i in range(1, rows.shape[0]):
        if which[i] != which[i - 1] or rows[i] != rows[i - 1] + 1:
            if len(breaks) >= most:
                break
            breaks.append(i)
    return breaks


def distinct(const int32_t[:] which, Py_ssize_t numbers):
    """Return the distinct numbers below ``numbers`` in ``which``, ascending. See ``ordering_py.distinct``."""
    found = bytearray(numbers)
    cdef uint8_t[::1] is_found = found
    cdef Py_ssize_t i
    for i in range(which.shape[0]):
        if which[i] < 0 or which[i] >= numbers:
            raise IndexError(f"number {which[i]} is outside 0 to {numbers - 1}")
        is_found[which[i]] = 1
    return [i for i in range(numbers) if is_found[i]]


def renumbered(const int32_t[:] which, const int32_t[:] table):
    """Return ``table[which[i]]`` for each i. See ``ordering_py.renumbered``."""
    out = np.empty(which.shape[0], np.int32)
    cdef int32_t[::1] target = out
    cdef Py_ssize_t i
    for i in range(which.shape[0]):
        if which[i] < 0 or which[i] >= table.shape[0]:
            raise IndexError(f"number {which[i]} is outside 0 to {table.shape[0] - 1}")
        target[i] = table[which[i]]
    return out


def ids_of_runs(
    const int64_t[:, ::1] firsts,
    const int64_t[:, ::1] steps,
    const int64_t[::1] counts,
    const int32_t[:] which,
    const int64_t[:] rows,
):
    """Return the numbers of row ``rows[i]`` of run ``which[i]`` for each i; see ``ordering_py.ids_of_runs``."""
    _check_lengths(which.shape[0], rows.shape[0])
    cdef Py_ssize_t i, k, runs = firsts.shape[0], width = firsts.shape[1]
    if steps.shape[0] != runs or steps.shape[1] != width or counts.shape[0] != runs:
        raise ValueError("the arrays of the runs differ in length")
    out = np.empty((rows.shape[0], width), np.int64)
    cdef int64_t[:, ::1] target = out
    cdef int32_t run
    for i in range(rows.shape[0]):
        run = which[i]
        if run < 0 or run >= runs or rows[i] < 0 or rows[i] >= counts[run]:
            raise IndexError(f"row {rows[i]} of run {run} does not exist")
        for k in range(width):
            target[i, k] = firsts[run, k] + steps[run, k] * rows[i]
    return out


cdef _check_lengths(Py_ssize_t which, Py_ssize_t rows):
    if which != rows:
        raise ValueError(f"{which} numbers of chunks and {rows} of rows")
