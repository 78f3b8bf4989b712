# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Choose the inputs of mixture rows in proportion to weights; ``mixing_py`` is the pure-Python twin.

The kernels keep the GIL: a call takes microseconds, but reacquiring the GIL can take milliseconds.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t

import numpy as np


cdef inline int64_t deadline(int64_t now, int64_t unit, int64_t least, int64_t lag, int64_t share):
    return now + (unit - least - lag) // share


def deal_rows(const int64_t[::1] shares, int64_t[::1] lags, Py_ssize_t count):
    """Return the input of each of the next ``count`` rows, as int32."""
    cdef Py_ssize_t inputs = shares.shape[0], taking_part = 0, i, k
    cdef int64_t unit = 0
    if lags.shape[0] != inputs or count < 0:
        raise ValueError(f"{inputs} shares, {lags.shape[0]} lags, {count} rows")
    # Collect the active inputs in a table, so that the inner loop skips inactive ones.
    table = np.empty((4, inputs), np.int64)
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
    cdef int64_t *lag = &rows[2, 0]
    cdef int64_t *due = &rows[3, 0]
    cdef int64_t first_due
    cdef Py_ssize_t chosen
    for i in range(taking_part):
        due[i] = deadline(0, unit, least, lag[i], share[i])
    for k in range(count):
        chosen = -1
        first_due = INT64_MAX
        for i in range(taking_part):
            lag[i] += share[i]
            if lag[i] >= least and due[i] < first_due:
                first_due = due[i]
                chosen = i
        if chosen < 0:
            raise ValueError("the lags do not sum to 0")
        which[k] = <int32_t>rows[0, chosen]
        lag[chosen] -= unit
        due[chosen] = deadline(k + 1, unit, least, lag[chosen], share[chosen])
    for i in range(taking_part):
        lags[rows[0, i]] = lag[i]
    return which_out


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
