# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Create ``bytes`` objects without extra copies; ``row_bytes_py`` is the pure-Python twin.

Python copies to a ``bytes`` object with the GIL. Here, all objects are allocated first, and filled without the GIL, so
other threads can run while many or large rows are copied.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import numpy as np

from aiostream_data._native.row_bytes_py import check_rows

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>

    enum { HUGE_PAGE_NBYTES = 2 << 20, MAPPED_NBYTES = 32 << 20 };

    /* Ask the system for huge pages. malloc maps this much memory anew for each object; without huge pages, the page
       faults would take half as long as receiving the bytes. */
    static void prefer_huge_pages(char *start, size_t nbytes) {
    #ifdef MADV_HUGEPAGE
        if (nbytes < MAPPED_NBYTES) return;
        uintptr_t first = ((uintptr_t)start + HUGE_PAGE_NBYTES - 1) & ~(uintptr_t)(HUGE_PAGE_NBYTES - 1);
        uintptr_t stop = ((uintptr_t)start + nbytes) & ~(uintptr_t)(HUGE_PAGE_NBYTES - 1);
        if (stop > first) (void)madvise((void *)first, stop - first, MADV_HUGEPAGE); /* a wish; errors do not matter */
    #else
        (void)start;
        (void)nbytes;
    #endif
    }
    """
    void prefer_huge_pages(char *start, size_t nbytes) nogil

cdef enum:
    KEEP_GIL_NBYTES = 1 << 17  # takes about 10 microseconds to copy; reacquiring the GIL takes at least as long


def byte_rows(const unsigned char[::1] values, starts, lengths):
    """Return ``[bytes(values[start:start + length]), ...]`` for all starts and lengths."""
    check_rows(values, starts, lengths)
    cdef const int64_t[::1] first = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] length = np.ascontiguousarray(lengths, np.int64)
    cdef Py_ssize_t count = first.shape[0], i
    cdef int64_t nbytes = 0
    cdef list rows = PyList_New(count)
    cdef object row
    cdef char** target
    cdef const unsigned char* source = &values[0] if values.shape[0] else NULL
    if not count:
        return rows
    target = <char**>malloc(count * sizeof(char*))
    if target == NULL:
        raise MemoryError
    try:
        for i in range(count):
            row = PyBytes_FromStringAndSize(NULL, length[i])
            target[i] = PyBytes_AS_STRING(row)
            Py_INCREF(row)
            PyList_SET_ITEM(rows, i, row)
            nbytes += length[i]
        if nbytes <= KEEP_GIL_NBYTES:
            _fill(target, source, &first[0], &length[0], count)
        else:
            with nogil:
                _fill(target, source, &first[0], &length[0], count)
    finally:
        free(target)
    return rows


cdef void _fill(
    char** target, const unsigned char* source, const int64_t* starts, const int64_t* lengths, Py_ssize_t count
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if lengths[i]:
            memcpy(target[i], source + starts[i], <size_t>lengths[i])


cdef class BytesMemory:
    """Writable memory of a new ``bytes`` object; see the pure-Python twin."""

    cdef bytes _data

    def __cinit__(self, Py_ssize_t nbytes):
        if nbytes < 0:
            raise ValueError(f"nbytes must be at least 0, got {nbytes}")
        self._data = PyBytes_FromStringAndSize(NULL, nbytes)
        prefer_huge_pages(PyBytes_AS_STRING(self._data), nbytes)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, PyBytes_AS_STRING(self._data), len(self._data), 0, flags)

    def view(self):
        """Return a writable view, which keeps the memory alive."""
        return memoryview(self)

    def data(self):
        """Return the ``bytes`` object. Nobody may write to the memory afterwards."""
        return self._data
