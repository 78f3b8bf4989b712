# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Create ``bytes`` objects without extra copies, and validate text; ``row_bytes_py`` is the pure-Python twin.

Python copies to a ``bytes`` object with the GIL. Here, all objects are allocated first, and filled without the GIL, so
other threads can run while many or large rows are copied.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import numpy as np

from aiostream_data._native.row_bytes_py import check_rows, check_rows_many

cdef extern from "utf8.h":
    bint utf8_is_valid(const unsigned char* text, int64_t nbytes) noexcept nogil

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

cdef extern from *:
    """
    #include <string.h>

    /* Return new text of valid or invalid UTF-8. Python's decoder takes longer for ASCII, which most text is. */
    static PyObject *text_of(const char *start, Py_ssize_t nbytes) {
        uint64_t word, high = 0;
        Py_ssize_t at = 0;
        PyObject *text;
        if (nbytes > 1) { /* Python shares text of one character */
            for (; at + 8 <= nbytes; at += 8) {
                memcpy(&word, start + at, 8);
                high |= word;
            }
            for (; at < nbytes; at++) high |= (unsigned char)start[at];
            if (!(high & 0x8080808080808080u)) {
                text = PyUnicode_New(nbytes, 127);
                if (text != NULL) memcpy(PyUnicode_1BYTE_DATA(text), start, (size_t)nbytes);
                return text;
            }
        }
        return PyUnicode_DecodeUTF8(start, nbytes, NULL);
    }
    """
    object text_of(const char *start, Py_ssize_t nbytes)

cdef extern from *:
    """
    /* Without the GIL, another thread could begin to use an object that nobody uses. */
    #ifdef Py_GIL_DISABLED
    enum { CAN_REUSE = 0 };
    #else
    enum { CAN_REUSE = 1 };
    #endif

    /* Let a bytes object that nobody uses begin as a new one of `nbytes` bytes, at most as many as were allocated. */
    #ifdef __GNUC__
    #pragma GCC diagnostic push
    #pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    #endif
    static void begin_anew(PyObject *object, Py_ssize_t nbytes) {
        Py_SET_SIZE((PyVarObject *)object, nbytes);
        ((PyBytesObject *)object)->ob_shash = -1; /* deprecated, because objects of users must not change it */
        PyBytes_AS_STRING(object)[nbytes] = 0;
    }
    #ifdef __GNUC__
    #pragma GCC diagnostic pop
    #endif
    """
    enum:
        CAN_REUSE
    void begin_anew(PyObject *object, Py_ssize_t nbytes)
    Py_ssize_t Py_REFCNT(PyObject *object)

cdef enum:
    KEEP_GIL_NBYTES = 1 << 17  # takes about 10 microseconds to copy; reacquiring the GIL takes at least as long


cdef _check_rows(const unsigned char[::1] values, starts, lengths):
    """Raise an error if a row is outside the array."""
    cdef const int64_t[::1] first = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] length = np.ascontiguousarray(lengths, np.int64)
    cdef Py_ssize_t i
    cdef bint is_inside = first.shape[0] == length.shape[0]
    if is_inside:
        for i in range(first.shape[0]):  # values.shape[0] - length[i] cannot overflow, but a sum could
            if first[i] < 0 or length[i] < 0 or first[i] > values.shape[0] - length[i]:
                is_inside = False
                break
    if not is_inside:
        check_rows(np.asarray(values), starts, lengths)


def byte_rows(const unsigned char[::1] values, starts, lengths, memory=None):
    """Return ``[bytes(values[start:start + length]), ...]`` for all starts and lengths; see the pure-Python twin."""
    _check_rows(values, starts, lengths)
    return _copied([values], np.zeros(len(starts), np.int32), starts, lengths, memory)


def byte_rows_many(sources, which, starts, lengths, memory=None):
    """Return rows of several arrays as ``bytes`` objects; see the pure-Python twin."""
    check_rows_many(sources, which, starts, lengths)
    return _copied(sources, which, starts, lengths, memory)


def byte_objects(const unsigned char[::1] values, starts, lengths):
    """Return rows as an array of ``bytes`` objects; see the pure-Python twin."""
    _check_rows(values, starts, lengths)
    rows = np.empty(len(starts), object)
    _copied([values], np.zeros(len(starts), np.int32), starts, lengths, None, rows)
    return rows


cdef list _copied(sources, which, starts, lengths, list memory, array=None):
    """Copy rows, whose places were checked, into new ``bytes`` objects or into ``memory``.

    Return the objects as a list, or fill ``array`` with them.
    """
    cdef const int32_t[::1] source = np.ascontiguousarray(which, np.int32)
    cdef const int64_t[::1] first = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] length = np.ascontiguousarray(lengths, np.int64)
    cdef const unsigned char[::1] values
    cdef Py_ssize_t count = first.shape[0], kinds = len(sources), i
    cdef int64_t nbytes = 0
    cdef object[::1] places = array
    cdef list rows = [] if array is not None else PyList_New(count)
    cdef bytes row
    cdef const char** begin
    cdef const char** origin
    cdef char** target
    if not count:
        return rows
    begin = <const char**>malloc((kinds + 2 * count) * sizeof(char*))
    if begin == NULL:
        raise MemoryError
    origin, target = begin + kinds, <char**>(begin + kinds + count)
    try:
        for i in range(kinds):
            values = sources[i]
            begin[i] = <const char*>&values[0] if values.shape[0] else NULL
        for i in range(count):
            row = PyBytes_FromStringAndSize(NULL, length[i]) if memory is None else (<BytesMemory?>memory[i])._data
            if len(row) != length[i]:
                raise ValueError(f"row {i} has {length[i]} bytes, but its memory {len(row)}")
            origin[i], target[i] = begin[source[i]] + first[i], PyBytes_AS_STRING(row)
            if array is not None:
                places[i] = row
            else:
                Py_INCREF(row)
                PyList_SET_ITEM(rows, i, row)
            nbytes += length[i]
        if nbytes <= KEEP_GIL_NBYTES:
            _fill(target, origin, &length[0], count)
        else:
            with nogil:
                _fill(target, origin, &length[0], count)
    finally:
        free(begin)
    return rows


def str_rows(const unsigned char[::1] values, starts, lengths):
    """Return ``[str(values[start:start + length], "utf-8"), ...]``; see the pure-Python twin."""
    _check_rows(values, starts, lengths)
    cdef const int64_t[::1] first = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] length = np.ascontiguousarray(lengths, np.int64)
    cdef Py_ssize_t i
    cdef const char* source = <const char*>&values[0] if values.shape[0] else NULL
    cdef list rows = []
    for i in range(first.shape[0]):
        rows.append(text_of(source + first[i], length[i]) if length[i] else "")
    return rows


def str_objects(const unsigned char[::1] values, starts, lengths):
    """Return rows as an array of ``str`` objects; see the pure-Python twin."""
    _check_rows(values, starts, lengths)
    cdef const int64_t[::1] first = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] length = np.ascontiguousarray(lengths, np.int64)
    cdef Py_ssize_t i
    cdef const char* source = <const char*>&values[0] if values.shape[0] else NULL
    rows = np.empty(first.shape[0], object)
    cdef object[::1] places = rows
    for i in range(first.shape[0]):
        places[i] = text_of(source + first[i], length[i]) if length[i] else ""
    return rows


def first_invalid_utf8(const unsigned char[::1] values, starts, lengths):
    """Return the first row that is not valid UTF-8, or -1; see the pure-Python twin."""
    _check_rows(values, starts, lengths)
    cdef const int64_t[::1] first = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] length = np.ascontiguousarray(lengths, np.int64)
    cdef const unsigned char* source = &values[0] if values.shape[0] else NULL
    cdef Py_ssize_t i, bad = -1
    with nogil:
        for i in range(first.shape[0]):
            if length[i] and not utf8_is_valid(source + first[i], length[i]):
                bad = i
                break
    return bad


cdef void _fill(char** target, const char** origin, const int64_t* lengths, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if lengths[i]:
            memcpy(target[i], origin[i], <size_t>lengths[i])


cdef bytes new_bytes(Py_ssize_t nbytes):
    data = PyBytes_FromStringAndSize(NULL, nbytes)
    prefer_huge_pages(PyBytes_AS_STRING(data), nbytes)
    return data


cdef class BytesMemory:
    """Writable memory of a new ``bytes`` object; see the pure-Python twin."""

    cdef bytes _data

    def __cinit__(self, Py_ssize_t nbytes, bytes data=None):
        if nbytes < 0:
            raise ValueError(f"nbytes must be at least 0, got {nbytes}")
        self._data = new_bytes(nbytes) if data is None else data

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, PyBytes_AS_STRING(self._data), len(self._data), 0, flags)

    def view(self):
        """Return a writable view, which keeps the memory alive."""
        return memoryview(self)

    def data(self):
        """Return the ``bytes`` object. Nobody may write to the memory afterwards."""
        return self._data


cdef enum:
    STEPS_OF_AN_OCTAVE = 16  # an object is allocated with up to 1/16 more bytes than it has, so that others can reuse it
    LEAST_STEP_NBYTES = 1 << 12
    MOST_LOOKED_AT = 256  # objects for each call


cdef Py_ssize_t rounded(Py_ssize_t nbytes):
    cdef Py_ssize_t step = LEAST_STEP_NBYTES
    while step * STEPS_OF_AN_OCTAVE * 2 <= nbytes:
        step *= 2
    return (nbytes + step - 1) // step * step


cdef class BytesPool:
    """Memory of ``bytes`` objects for new ones; see the pure-Python twin."""

    cdef Py_ssize_t _most_nbytes
    cdef list _lent  # objects, the oldest first
    cdef list _room  # number of bytes that each of them can take
    cdef dict _idle  # objects that nobody else refers to, by their room
    cdef readonly Py_ssize_t nbytes

    def __cinit__(self, Py_ssize_t most_nbytes):
        self._most_nbytes = most_nbytes if CAN_REUSE else 0
        self._lent, self._room, self._idle, self.nbytes = [], [], {}, 0

    def memory(self, sizes):
        """Return memory for new objects of these sizes."""
        cdef Py_ssize_t nbytes, room
        cdef bytes data
        cdef list memory = [], waiting
        self._find_idle(MOST_LOOKED_AT + len(sizes))
        for nbytes in sizes:
            if nbytes <= 0:
                memory.append(BytesMemory(nbytes))
                continue
            room = rounded(nbytes)
            waiting = self._idle.get(room)
            if waiting:
                data = waiting.pop()
                begin_anew(<PyObject *>data, nbytes)
            elif self._makes_room(room):
                data = new_bytes(room)
                begin_anew(<PyObject *>data, nbytes)
                self.nbytes += room
            else:
                memory.append(BytesMemory(nbytes))
                continue
            self._lent.append(data)
            self._room.append(room)
            memory.append(BytesMemory(nbytes, data))
        return memory

    def close(self):
        """Forget all objects."""
        self._lent, self._room, self._idle, self.nbytes, self._most_nbytes = [], [], {}, 0, 0

    cdef _find_idle(self, Py_ssize_t most):
        """Look at the oldest objects. Those in use become the youngest."""
        cdef Py_ssize_t place, count = min(most, len(self._lent))
        cdef list lent = self._lent[:count], room = self._room[:count]
        del self._lent[:count], self._room[:count]
        for place in range(count):
            if Py_REFCNT(PyList_GET_ITEM(lent, place)) == 1:  # of the list
                self._idle.setdefault(room[place], []).append(lent[place])
            else:
                self._lent.append(lent[place])
                self._room.append(room[place])

    cdef bint _makes_room(self, Py_ssize_t room):
        """Forget idle objects of other sizes until another object may be remembered."""
        while self.nbytes + room > self._most_nbytes and self._idle:
            other, waiting = next(iter(self._idle.items()))
            if waiting:
                waiting.pop()
                self.nbytes -= other
            if not waiting:
                del self._idle[other]
        return self.nbytes + room <= self._most_nbytes
