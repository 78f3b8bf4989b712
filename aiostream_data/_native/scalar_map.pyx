# cython: boundscheck=False, wraparound=False
"""Call a Python function on every number of an array. ``scalar_map_py.py`` is the clear twin.

The GIL is held throughout, since the function is Python's. What is gained is that no list of boxed
numbers is ever made: each number is boxed, used and freed while it is in the processor's cache.
"""

from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact, PyFloat_FromDouble
from cpython.long cimport PyLong_CheckExact, PyLong_FromLongLong
from libc.stdint cimport int64_t

import numpy as np

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow)
    object PyObject_CallOneArg(object function, object argument)


def scalar_results(object function, object values not None, int64_t[::1] row not None):
    """Return (results, done, odd, error): the function's results as int64 or float64, as far as they are of one type.

    ``done`` results are in the array; when a result is of another type than the first, or no number,
    or does not fit, it is ``odd``, ``done`` is its row, and no later row was called. When the function
    raises, that is ``error``, and ``done`` is its row. ``row[0]`` is always the row whose call came last.
    """
    if values.dtype == np.int64:
        return _map_ints(function, values, row)
    if values.dtype == np.float64:
        return _map_floats(function, values, row)
    raise TypeError(f"values must be int64 or float64, not {values.dtype}")


cdef object _map_ints(object function, const int64_t[:] values, int64_t[::1] row):
    cdef _Results results = _Results(values.shape[0])
    cdef Py_ssize_t i
    try:
        for i in range(values.shape[0]):
            row[0] = i
            if not results.take(i, PyObject_CallOneArg(function, PyLong_FromLongLong(values[i]))):
                return results.array(), i, results.odd, None
    except BaseException as error:
        return results.array(), row[0], None, error
    return results.array(), values.shape[0], None, None


cdef object _map_floats(object function, const double[:] values, int64_t[::1] row):
    cdef _Results results = _Results(values.shape[0])
    cdef Py_ssize_t i
    try:
        for i in range(values.shape[0]):
            row[0] = i
            if not results.take(i, PyObject_CallOneArg(function, PyFloat_FromDouble(values[i]))):
                return results.array(), i, results.odd, None
    except BaseException as error:
        return results.array(), row[0], None, error
    return results.array(), values.shape[0], None, None


cdef class _Results:
    """An int64 or float64 array, as the first result says."""

    cdef object ints, floats
    cdef readonly object odd
    cdef int64_t[::1] as_ints
    cdef double[::1] as_floats
    cdef bint are_ints

    def __init__(self, Py_ssize_t count):
        self.ints = np.empty(count, np.int64)
        self.floats = self.ints.view(np.float64)
        self.as_ints = self.ints
        self.as_floats = self.floats
        self.are_ints = True

    cdef inline bint take(self, Py_ssize_t i, object value):
        cdef int overflow = 0
        if i == 0:
            self.are_ints = not PyFloat_CheckExact(value)
        if self.are_ints and PyLong_CheckExact(value):
            self.as_ints[i] = PyLong_AsLongLongAndOverflow(value, &overflow)
            if not overflow:
                return True
        elif not self.are_ints and PyFloat_CheckExact(value):
            self.as_floats[i] = PyFloat_AS_DOUBLE(value)
            return True
        self.odd = value
        return False

    cdef object array(self):
        return self.ints if self.are_ints else self.floats
