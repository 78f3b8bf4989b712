# cython: boundscheck=False, wraparound=False
"""Call a Python function on each number of an array; ``scalar_map_py`` is the pure-Python twin.

The kernel holds the GIL, because it calls Python. It saves time by not creating a list of boxed numbers: each number is
boxed, used and freed while it is in the processor's cache.
"""

from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact, PyFloat_FromDouble
from cpython.long cimport PyLong_CheckExact, PyLong_FromLongLong
from libc.stdint cimport int64_t

import numpy as np

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow)
    object PyObject_CallOneArg(object function, object argument)


def scalar_results(object function, object values not None, int64_t[::1] row not None):
    """Call ``function`` on each value, while all results are int64 or all are float64.

    Returns:
        ``(results, done, odd, error)``. The first ``done`` entries of ``results`` are valid. ``odd`` is the first
        result with another type than the first one, or beyond 64 bits; the calls stop there. ``error`` is the
        exception that the function raised. ``row[0]`` is always the row of the last call.
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
    """Result array of int64 or float64; the first result determines the dtype."""

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
