# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Choose the inputs of mixture rows in proportion to weights; ``mixing_py`` is the pure-Python twin.

The kernels keep the GIL: a call takes microseconds, but reacquiring the GIL can take milliseconds.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t

import numpy as np


cdef struct Entry:
    int64_t row  # the entry with the lowest row is first
    int64_t place  # then the one with the lowest place


cdef inline bint is_before(Entry one, Entry other) noexcept:
    return one.row < other.row or (one.row == other.row and one.place < other.place)


cdef inline void push(Entry *heap, Py_ssize_t count, Entry entry) noexcept:
    """Insert ``entry`` into a binary heap of ``count`` entries, which has room for one more."""
    cdef Py_ssize_t at = count, parent
    while at:
        parent = (at - 1) // 2
        if not is_before(entry, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = entry


cdef inline Entry pop(Entry *heap, Py_ssize_t count) noexcept:
    """Remove and return the first of the ``count`` entries of a binary heap."""
    cdef Entry first = heap[0], last = heap[count - 1]
    cdef Py_ssize_t at = 0, child, left = count - 1
    while 2 * at + 1 < left:
        child = 2 * at + 1
        if child + 1 < left and is_before(heap[child + 1], heap[child]):
            child += 1
        if not is_before(heap[child], last):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return first


def deal_rows(const int64_t[::1] shares, int64_t[::1] lags, Py_ssize_t count):
    """Return the input of each of the next ``count`` rows, as int32."""
    cdef Py_ssize_t inputs = shares.shape[0], taking_part = 0, ready_count = 0, waiting_count = 0, i, k
    cdef int64_t unit = 0
    if lags.shape[0] != inputs or count < 0:
        raise ValueError(f"{inputs} shares, {lags.shape[0]} lags, {count} rows")
    # Collect the active inputs in a table, so that the heaps skip inactive ones.
    table = np.empty((7, inputs), np.int64)
    cdef int64_t[:, ::1] rows = table
    for i in range(inputs):
        if shares[i] < 0:
            raise ValueError(f"the share of input {i} is {shares[i]}")
        if shares[i]:
            rows[0, taking_part] = i
            rows[1, taking_part] = shares[i]
            rows[2, taking_part] = lags[i]
            taking_part += 1
            unit += shares[i]
    if not taking_part:
        raise ValueError("no input has a share")
    which_out = np.empty(count, np.int32)
    cdef int32_t[::1] which = which_out
    if taking_part == 1:
        which_out[:] = rows[0, 0]
        return which_out
    cdef int64_t least = unit // (2 * taking_part - 2)
    cdef int64_t *share = &rows[1, 0]
    cdef int64_t *start = &rows[2, 0]  # lag, less the share of each row so far: it changes only for the chosen input
    cdef Entry *ready = <Entry *>&rows[3, 0]  # eligible inputs, by deadline
    cdef Entry *waiting = <Entry *>&rows[5, 0]  # other inputs, by the row from which on they are eligible
    cdef Entry entry
    for i in range(taking_part):
        entry.row, entry.place = max(0, eligible_from(start[i], least, share[i])), i
        push(waiting, waiting_count, entry)
        waiting_count += 1
    for k in range(count):
        while waiting_count and waiting[0].row <= k:
            entry = pop(waiting, waiting_count)
            waiting_count -= 1
            i = entry.place
            entry.row = (unit - least - start[i]) // share[i]
            push(ready, ready_count, entry)
            ready_count += 1
        if not ready_count:
            raise ValueError("the lags do not sum to 0")
        entry = pop(ready, ready_count)
        ready_count -= 1
        i = entry.place
        which[k] = <int32_t>rows[0, i]
        start[i] -= unit
        entry.row = max(k + 1, eligible_from(start[i], least, share[i]))
        push(waiting, waiting_count, entry)
        waiting_count += 1
    for i in range(taking_part):
        lags[rows[0, i]] = start[i] + share[i] * count
    return which_out


cdef inline int64_t eligible_from(int64_t start, int64_t least, int64_t share):
    """Return the first row at which ``start + share * (row + 1)`` is at least ``least``."""
    return -((start - least) // share) - 1


def follow_choices(const int32_t[::1] choices, int64_t[::1] next_row, const int64_t[::1] stop_row):
    """Take one row per choice, until a chosen input has no loaded row. Return the row indices in the chunks."""
    cdef Py_ssize_t inputs = next_row.shape[0], given = 0, count = choices.shape[0]
    cdef int32_t number
    if stop_row.shape[0] != inputs:
        raise ValueError(f"{inputs} next rows, {stop_row.shape[0]} stop rows")
    rows_out = np.empty(count, np.int64)
    cdef int64_t[::1] rows = rows_out
    while given < count:
        number = choices[given]
        if number < 0 or number >= inputs:
            raise ValueError(f"choice {number} of {inputs} inputs")
        if next_row[number] >= stop_row[number]:
            break
        rows[given] = next_row[number]
        next_row[number] += 1
        given += 1
    return rows_out[:given]
