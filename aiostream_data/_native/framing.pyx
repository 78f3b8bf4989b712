# cython: boundscheck=False, wraparound=False, cdivision=True
"""Split a buffer into records without the GIL, and compute CRC-32C; ``framing_py`` is the pure-Python twin.

Each position is checked against the end of the buffer before it is read. The index grows with the number of records
found. So the allocated memory is proportional to the size of the input, even for malicious input.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

import numpy as np

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX

cdef extern from "crc32c.h" nogil:
    int crc32c_use_hardware
    void crc32c_init()
    uint32_t crc32c_extend(uint32_t value, const unsigned char *p, size_t nbytes)
    uint32_t crc32c_mask(uint32_t value)
    uint32_t crc32c_masked(const unsigned char *p, size_t nbytes)
    uint32_t crc32c_little32(const unsigned char *p)
    uint64_t crc32c_little64(const unsigned char *p)

    # Used by tests, which compare the table implementation with the CPU instructions.
    uint32_t crc32c_by_table(uint32_t state, const unsigned char *p, size_t nbytes)

crc32c_init()

cdef enum Verdict:
    INCOMPLETE, BAD_LENGTH_CRC, TOO_LONG, BAD_PAYLOAD_CRC, NO_MEMORY

cdef Py_ssize_t HEADER_NBYTES = 12
cdef Py_ssize_t FOOTER_NBYTES = 4
cdef Py_ssize_t FIRST_CAPACITY = 512
cdef Py_ssize_t NOGIL_NBYTES = 32768


cdef struct Index:  # grows without the GIL, because waiting for the GIL again takes longer than splitting
    int64_t *starts
    int64_t *lengths
    Py_ssize_t count
    Py_ssize_t capacity


def hardware_crc() -> bool:
    """Return True if checksums use CPU instructions on this machine."""
    return bool(crc32c_use_hardware)


def crc32c(data, uint32_t value=0) -> int:
    """Return the CRC-32C of ``data`` (any contiguous buffer). ``value`` is the checksum of preceding data."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len < NOGIL_NBYTES:  # waiting for the GIL again would take longer
        value = crc32c_extend(value, <const unsigned char *> view.buf, view.len)
    else:
        with nogil:
            value = crc32c_extend(value, <const unsigned char *> view.buf, view.len)
    PyBuffer_Release(&view)
    return value


def crc32c_table(data) -> int:
    """Return the CRC-32C of ``data``, computed with look-up tables on any CPU."""
    cdef Py_buffer view
    cdef uint32_t state
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    state = crc32c_by_table(0xffffffffU, <const unsigned char *> view.buf, view.len)
    PyBuffer_Release(&view)
    return ~state & 0xffffffffU


def masked_crc32c(data) -> int:
    """Return the masked CRC-32C of ``data``, as stored in TFRecord files."""
    return crc32c_mask(crc32c(data))


cdef Verdict cut_tfrecords(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, bint verify, uint64_t max_nbytes, Index *index,
) noexcept nogil:
    """Split records, starting at ``at[0]``, until the data ends or a record is invalid. Store the end in ``at[0]``."""
    cdef uint64_t length
    cdef const unsigned char *record
    while stop - at[0] >= HEADER_NBYTES:
        record = data + at[0]
        if crc32c_masked(record, 8) != crc32c_little32(record + 8):
            return BAD_LENGTH_CRC
        length = crc32c_little64(record)
        if length > max_nbytes:
            return TOO_LONG
        # max_nbytes is at most 2**62, so the sum cannot overflow.
        if length + HEADER_NBYTES + FOOTER_NBYTES > <uint64_t> (stop - at[0]):
            return INCOMPLETE
        record += HEADER_NBYTES
        if verify and crc32c_masked(record, length) != crc32c_little32(record + length):
            return BAD_PAYLOAD_CRC
        if not added(index, at[0] + HEADER_NBYTES, length):
            return NO_MEMORY
        at[0] += HEADER_NBYTES + <Py_ssize_t> length + FOOTER_NBYTES
    return INCOMPLETE


def frame_tfrecords(
    const unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t stop, bint verify, int64_t max_nbytes
):
    """Find the complete TFRecords in ``buffer[start:stop]``. See ``framing_py.frame_tfrecords``."""
    _check(buffer.shape[0], start, stop)
    cdef Py_ssize_t at = start
    cdef uint64_t limit = min(max(max_nbytes, 0), <int64_t> 1 << 62)
    cdef Verdict verdict = INCOMPLETE
    cdef const unsigned char *data = &buffer[0] if buffer.shape[0] else NULL
    cdef Index index = Index(NULL, NULL, 0, 0)
    try:
        with nogil:
            verdict = cut_tfrecords(data, &at, stop, verify, limit, &index)
        starts, lengths = _arrays(index)
    finally:
        _release(index)
    if verdict == NO_MEMORY:
        raise MemoryError
    problem = None
    if verdict == BAD_LENGTH_CRC:
        problem = "length checksum mismatch"
    elif verdict == TOO_LONG:
        problem = f"record of {crc32c_little64(data + at)} bytes is longer than the limit of {limit}"
    elif verdict == BAD_PAYLOAD_CRC:
        problem = "payload checksum mismatch"
    return starts, lengths, at, problem


cdef Verdict cut_lines(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, Py_ssize_t most_lines, Index *index,
) noexcept nogil:
    """Split lines, starting at ``at[0]``, until the data ends. Store the end in ``at[0]``."""
    cdef const unsigned char *found
    cdef Py_ssize_t end
    while at[0] < stop and index.count < most_lines:
        found = <const unsigned char *> memchr(data + at[0], 10, stop - at[0])
        if found == NULL:
            return INCOMPLETE
        end = found - data
        if not added(index, at[0], end - at[0] - (1 if end > at[0] and data[end - 1] == 13 else 0)):
            return NO_MEMORY
        at[0] = end + 1
    return INCOMPLETE


def find_lines(
    const unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t most_lines=PY_SSIZE_T_MAX
):
    """Find the complete lines in ``buffer[start:stop]``. See ``framing_py.find_lines``."""
    _check(buffer.shape[0], start, stop)
    cdef Py_ssize_t at = start
    cdef const unsigned char *data = &buffer[0] if buffer.shape[0] else NULL
    cdef Verdict verdict = INCOMPLETE
    cdef Index index = Index(NULL, NULL, 0, 0)
    try:
        with nogil:
            verdict = cut_lines(data, &at, stop, most_lines, &index)
        starts, lengths = _arrays(index)
    finally:
        _release(index)
    if verdict == NO_MEMORY:
        raise MemoryError
    return starts, lengths, at


cdef inline bint added(Index *index, int64_t start, int64_t length) noexcept nogil:
    """Append a record to the index. Return False without memory for it."""
    if index.count == index.capacity and not grown(index):
        return False
    index.starts[index.count] = start
    index.lengths[index.count] = length
    index.count += 1
    return True


cdef bint grown(Index *index) noexcept nogil:
    """Double the room of an index. Return False without memory for it."""
    cdef Py_ssize_t capacity = 2 * index.capacity if index.capacity else FIRST_CAPACITY
    cdef int64_t *starts = <int64_t *> realloc(index.starts, capacity * sizeof(int64_t))
    if starts == NULL:
        return False
    index.starts = starts
    cdef int64_t *lengths = <int64_t *> realloc(index.lengths, capacity * sizeof(int64_t))
    if lengths == NULL:
        return False
    index.lengths = lengths
    index.capacity = capacity
    return True


cdef _arrays(Index index):
    """Return the starts and lengths of an index as arrays."""
    return _array(index.starts, index.count), _array(index.lengths, index.count)


cdef _array(const int64_t *numbers, Py_ssize_t count):
    array = np.empty(count, np.int64)
    cdef int64_t[::1] view = array
    if count:
        memcpy(&view[0], numbers, count * sizeof(int64_t))
    return array


cdef _release(Index index):
    free(index.starts)
    free(index.lengths)


cdef _check(Py_ssize_t size, Py_ssize_t start, Py_ssize_t stop):
    if not 0 <= start <= stop <= size:
        raise IndexError(f"bytes {start} to {stop} are outside a buffer of {size}")
