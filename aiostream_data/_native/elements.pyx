# cython: boundscheck=False, wraparound=False
"""Split dicts and tuples into one list for each leaf, and build dicts; ``elements_py`` is the pure-Python twin.

The functions hold the GIL, because they access Python objects.
"""

from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE


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
