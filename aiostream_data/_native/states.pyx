# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Pack the columns of row ids for saved states, and write states as JSON; ``states_py`` is the pure-Python twin."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_CheckExact
from cpython.float cimport PyFloat_CheckExact
from cpython.list cimport PyList_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.tuple cimport PyTuple_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import numpy as np

from aiostream_data._native.states_py import check_groups, check_width
from aiostream_data._native.states_py import json_bytes as json_bytes_of_any

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    bint PyUnicode_IS_ASCII(object text)
    void *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef enum:
    MOST_DEEP = 128  # deeper values are left to the twin
    MOST_DIGITS = 20


def above_lowest(const int64_t[::1] column not None):
    """Return the lowest value of a column, the offset of each value from it as uint64, and the largest offset."""
    cdef Py_ssize_t i, rows = column.shape[0]
    cdef int64_t low = 0, high = 0, value
    found = np.empty(rows, np.uint64)
    cdef uint64_t[::1] offsets = found
    if rows:
        low = high = column[0]
    for i in range(1, rows):
        value = column[i]
        low = value if value < low else low
        high = value if value > high else high
    for i in range(rows):
        offsets[i] = <uint64_t>column[i] - <uint64_t>low
    return low, found, <uint64_t>high - <uint64_t>low


def above_lowest_of_groups(const int64_t[::1] column not None, const uint64_t[::1] groups not None, Py_ssize_t count):
    """Return the lowest value of each group, the offset of each value from it as uint64, and the largest offset.

    The value of a group without rows is the highest of the column.
    """
    cdef Py_ssize_t i, rows = column.shape[0]
    check_groups(rows, groups, count)
    cdef int64_t high = 0
    cdef uint64_t largest = 0, offset, group
    for i in range(rows):
        high = column[i] if i == 0 or column[i] > high else high
    lowest = np.full(count, high, np.int64)
    found = np.empty(rows, np.uint64)
    cdef int64_t[::1] lows = lowest
    cdef uint64_t[::1] offsets = found
    for i in range(rows):
        group = groups[i]
        if column[i] < lows[group]:
            lows[group] = column[i]
    for i in range(rows):
        offset = <uint64_t>column[i] - <uint64_t>lows[groups[i]]
        offsets[i] = offset
        largest = offset if offset > largest else largest
    return lowest, found, largest


def planes_of(const uint64_t[::1] offsets not None, int width):
    """Return the low ``width`` bytes of all offsets as planes of 8, 4, 2 and 1 bytes per row, in this order."""
    check_width(width)
    cdef Py_ssize_t i, rows = offsets.shape[0]
    cdef bytes planes = PyBytes_FromStringAndSize(NULL, rows * width)
    cdef uint8_t *place = <uint8_t *><char *>planes
    cdef uint64_t value
    cdef int below = 0, plane = 8, k
    while plane:
        if width & plane:
            for i in range(rows):
                value = offsets[i] >> (8 * below)
                for k in range(plane):
                    place[k] = <uint8_t>(value >> (8 * k))
                place += plane
            below += plane
        plane >>= 1
    return planes


cdef struct Text:
    char *data
    Py_ssize_t size
    Py_ssize_t room


cdef int reserve(Text *text, Py_ssize_t nbytes) except -1:
    """Make room for ``nbytes`` more bytes."""
    cdef Py_ssize_t room
    cdef char *data
    if text.size + nbytes > text.room:
        room = 2 * (text.size + nbytes) + 256
        data = <char *>realloc(text.data, room)
        if data == NULL:
            raise MemoryError
        text.data, text.room = data, room
    return 0


cdef int put(Text *text, const char *data, Py_ssize_t nbytes) except -1:
    reserve(text, nbytes)
    memcpy(text.data + text.size, data, nbytes)
    text.size += nbytes
    return 0


cdef int put_integer(Text *text, long long value) except -1:
    cdef char digits[MOST_DIGITS]
    cdef int at = MOST_DIGITS
    cdef unsigned long long left = <unsigned long long>value
    if value < 0:
        left = 0 - left
    while True:
        at -= 1
        digits[at] = <char>(48 + left % 10)
        left //= 10
        if not left:
            break
    if value < 0:
        at -= 1
        digits[at] = 45
    return put(text, digits + at, MOST_DIGITS - at)


cdef bint put_string(Text *text, object value) except -1:
    """Write a string. Return False if it has characters that JSON escapes."""
    cdef Py_ssize_t i, size
    cdef const uint8_t *data
    cdef uint8_t is_special = 0
    if not PyUnicode_IS_ASCII(value):
        return False
    size, data = PyUnicode_GET_LENGTH(value), <const uint8_t *>PyUnicode_DATA(value)
    for i in range(size):
        is_special |= (data[i] < 32) | (data[i] == 34) | (data[i] == 92)
    if is_special:
        return False
    reserve(text, size + 2)
    text.data[text.size] = 34
    memcpy(text.data + text.size + 1, data, size)
    text.data[text.size + size + 1] = 34
    text.size += size + 2
    return True


cdef bint put_value(Text *text, object value, int depth) except -1:
    """Write a value. Return False if it must be left to the twin."""
    cdef int overflow = 0
    cdef long long number
    cdef bint is_first = True
    if depth > MOST_DEEP:
        return False
    if value is None:
        put(text, b"null", 4)
    elif value is True:
        put(text, b"true", 4)
    elif value is False:
        put(text, b"false", 5)
    elif PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            digits = str(value).encode()
            put(text, <const char *>digits, len(digits))
        else:
            put_integer(text, number)
    elif PyUnicode_CheckExact(value):
        return put_string(text, value)
    elif PyList_CheckExact(value) or PyTuple_CheckExact(value):
        put(text, b"[", 1)
        for part in value:
            if not is_first:
                put(text, b", ", 2)
            is_first = False
            if not put_value(text, part, depth + 1):
                return False
        put(text, b"]", 1)
    elif PyDict_CheckExact(value):
        for key in value:
            if not PyUnicode_CheckExact(key):
                return False
        put(text, b"{", 1)
        for key in sorted(value):
            if not is_first:
                put(text, b", ", 2)
            is_first = False
            if not put_string(text, key):
                return False
            put(text, b": ", 2)
            if not put_value(text, value[key], depth + 1):
                return False
        put(text, b"}", 1)
    else:
        return False
    return True


def json_bytes(value):
    """Return a value as JSON text with sorted keys; see the pure-Python twin, which writes all unusual values."""
    cdef Text text
    text.data, text.size, text.room = NULL, 0, 0
    try:
        if not put_value(&text, value, 0):
            return json_bytes_of_any(value)
        return PyBytes_FromStringAndSize(text.data, text.size)
    finally:
        free(text.data)
