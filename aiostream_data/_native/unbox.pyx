# cython: boundscheck=False, wraparound=False
"""Convert lists of Python numbers to arrays; ``unbox_py`` is the pure-Python twin.

The functions hold the GIL, because they access Python objects.
"""

from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.list cimport PyList_GET_ITEM
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

import numpy as np

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow)


def unbox_ints(list values not None):
    """Return an int64 array if all values are exactly of type int and fit into 64 bits, else None."""
    cdef Py_ssize_t i, count = len(values)
    cdef int overflow = 0
    cdef object out = np.empty(count, np.int64)
    cdef int64_t[::1] target = out
    cdef object value
    for i in range(count):
        value = <object>PyList_GET_ITEM(values, i)
        if not PyLong_CheckExact(value):
            return None
        target[i] = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return None
    return out


def unbox_floats(list values not None):
    """Return a float64 array if all values are exactly of type float, else None."""
    cdef Py_ssize_t i, count = len(values)
    cdef object out = np.empty(count, np.float64)
    cdef double[::1] target = out
    cdef object value
    for i in range(count):
        value = <object>PyList_GET_ITEM(values, i)
        if not PyFloat_CheckExact(value):
            return None
        target[i] = PyFloat_AS_DOUBLE(value)
    return out
