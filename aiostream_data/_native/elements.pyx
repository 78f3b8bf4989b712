# cython: boundscheck=False, wraparound=False
"""Pull elements, split dicts and tuples into lists, and build dicts; ``elements_py`` is the pure-Python twin.

The functions hold the GIL, because they access Python objects.
"""

from time import perf_counter

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError, PyDict_SetItem, PyDict_Size
from cpython.float cimport PyFloat_CheckExact
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE

cdef extern from "Python.h":
    PyObject *PyIter_Next(object iterator) except? NULL  # NULL without an error is the end


def dict_columns(list elements not None, tuple names not None):
    """Return a list of values for each name, or None unless all elements are dicts with exactly these keys."""
    cdef Py_ssize_t i, k, size = PyTuple_GET_SIZE(names)
    cdef list columns = [[] for _ in range(size)]
    cdef PyObject *found
    for i in range(PyList_GET_SIZE(elements)):
        element = <object>PyList_GET_ITEM(elements, i)
        if not PyDict_CheckExact(element) or PyDict_Size(element) != size:
            return None
        for k in range(size):
            found = PyDict_GetItemWithError(element, <object>PyTuple_GET_ITEM(names, k))
            if found == NULL:
                return None
            (<list>PyList_GET_ITEM(columns, k)).append(<object>found)
    return columns


def tuple_columns(list elements not None, Py_ssize_t size):
    """Return a list of values for each position, or None unless all elements are tuples of this size."""
    cdef Py_ssize_t i, k
    cdef list columns = [[] for _ in range(size)]
    for i in range(PyList_GET_SIZE(elements)):
        element = <object>PyList_GET_ITEM(elements, i)
        if not PyTuple_CheckExact(element) or PyTuple_GET_SIZE(element) != size:
            return None
        for k in range(size):
            (<list>PyList_GET_ITEM(columns, k)).append(<object>PyTuple_GET_ITEM(element, k))
    return columns


def dicts_of(tuple names not None, list columns not None):
    """Return the dict of each row, from a list of values for each name."""
    cdef Py_ssize_t i, k, size = PyTuple_GET_SIZE(names)
    cdef Py_ssize_t count
    cdef list column, rows = []
    if PyList_GET_SIZE(columns) != size or size == 0:
        raise ValueError("one column is needed for each name")
    count = len(columns[0])
    for column in columns:
        if PyList_GET_SIZE(column) != count:
            raise ValueError("the columns have different lengths")
    for i in range(count):
        row = {}
        for k in range(size):
            column = <list>PyList_GET_ITEM(columns, k)
            PyDict_SetItem(row, <object>PyTuple_GET_ITEM(names, k), <object>PyList_GET_ITEM(column, i))
        rows.append(row)
    return rows


def pull_elements(object iterator, list elements not None, Py_ssize_t count, Py_ssize_t nbytes, double until_s, sizes):
    """Append elements of an iterator to a list, and return True if the iterator has ended.

    An error of the iterator is raised after the elements before it are appended.

    Args:
        count, nbytes: The function stops at this many appended elements or bytes.
        until_s: Time of ``perf_counter``, in seconds, after which no further element is taken.
        sizes: Function that returns the size of an element in bytes. Numbers count as 8 bytes.
    """
    cdef Py_ssize_t taken = 0, size = 0
    cdef PyObject *found
    while taken < count and size < nbytes and perf_counter() < until_s:
        found = PyIter_Next(iterator)
        if found == NULL:
            return True
        element = <object>found
        Py_DECREF(element)  # the cast took a reference of its own
        elements.append(element)
        taken += 1
        if PyLong_CheckExact(element) or PyFloat_CheckExact(element):
            size += 8
        elif PyBytes_CheckExact(element):
            size += PyBytes_GET_SIZE(element)
        else:
            size += sizes(element)
    return False
