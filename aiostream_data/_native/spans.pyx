# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Read many spans of a file and compute their checksums; ``spans_py`` is the pure-Python twin.

One call reads all rows. Separate calls per row would reacquire the GIL each time and wait for other Python threads.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t

import os

import numpy as np

from aiostream_data._native.spans_py import check_bytes, check_inside, check_spans

cdef extern from "crc32c.h":
    void crc32c_init()
    uint32_t crc32c_extend(uint32_t value, const unsigned char* p, size_t nbytes) nogil

cdef extern from "highway.h":
    void highway_init()
    uint64_t highway_hash(const uint64_t* key, const unsigned char* p, size_t nbytes) nogil

cdef extern from *:
    """
    #include <fcntl.h>
    #include <unistd.h>
    static void spans_will_need(int file, int64_t offset, int64_t length) {
    #ifdef POSIX_FADV_WILLNEED
        (void)posix_fadvise(file, offset, length, POSIX_FADV_WILLNEED);
    #else
        (void)file; (void)offset; (void)length;
    #endif
    }
    static int64_t spans_pread(int file, void* target, int64_t length, int64_t offset) {
        return pread(file, target, (size_t)(length < (1 << 30) ? length : (1 << 30)), offset);
    }
    """
    void spans_will_need(int file, int64_t offset, int64_t length) nogil
    int64_t spans_pread(int file, void* target, int64_t length, int64_t offset) nogil

crc32c_init()
highway_init()


def read_spans(int file, offsets, lengths, bint ahead=False):
    """Read ``lengths[i]`` bytes at ``offsets[i]`` of a file, for each i. Return them concatenated."""
    check_spans(offsets, lengths)
    cdef const int64_t[:] offset_of = offsets, length_of = lengths
    cdef Py_ssize_t count = offset_of.shape[0], i = 0, j
    cdef int64_t done = 0, got, run
    cdef int failed = 0
    out = np.empty(int(lengths.sum()), np.uint8)
    cdef unsigned char[::1] target = out
    if not len(out):
        return out
    with nogil:
        if ahead:
            for j in range(count):
                spans_will_need(file, offset_of[j], length_of[j])
        while i < count:
            run = length_of[i]  # merged with the following spans that are adjacent in the file
            j = i + 1
            while j < count and offset_of[j] == offset_of[i] + run:
                run += length_of[j]
                j += 1
            got = _read(file, &target[0] + done, run, offset_of[i], &failed)
            if got < run:
                break
            done += run
            i = j
    if failed:
        raise OSError(failed, os.strerror(failed))
    if i < count:
        raise EOFError(f"{length_of[i]} bytes at {offset_of[i]} of a file that ends before")
    return out


cdef int64_t _read(int file, unsigned char* target, int64_t length, int64_t offset, int* failed) except -1 nogil:
    """Return the number of bytes read. If a read fails, store the system's error number in ``failed``."""
    cdef int64_t done = 0, got
    while done < length:
        got = spans_pread(file, target + done, length - done, offset + done)
        if got == 0:
            break
        if got < 0:
            if errno != EINTR:
                failed[0] = errno
                break
            with gil:
                PyErr_CheckSignals()
            continue
        done += got
    return done


def crc32c_spans(values, starts, lengths):
    """Return the CRC-32C of ``values[starts[i] : starts[i] + lengths[i]]`` for each i."""
    check_inside(values, starts, lengths)
    cdef const unsigned char[::1] data = values
    cdef const int64_t[:] start_of = starts, length_of = lengths
    cdef Py_ssize_t count = start_of.shape[0], i
    cdef const unsigned char* first = &data[0] if data.shape[0] else NULL
    sums = np.empty(count, np.uint32)
    cdef uint32_t[::1] sum_of = sums
    with nogil:
        for i in range(count):
            sum_of[i] = crc32c_extend(0, first + start_of[i], length_of[i]) if length_of[i] else 0
    return sums


def highway_spans(values, starts, lengths, key):
    """Return the HighwayHash-64 of ``values[starts[i] : starts[i] + lengths[i]]`` for each i."""
    check_inside(values, starts, lengths)
    cdef const unsigned char[::1] data = values
    cdef const int64_t[:] start_of = starts, length_of = lengths
    cdef Py_ssize_t count = start_of.shape[0], i
    cdef const unsigned char* first = &data[0] if data.shape[0] else NULL
    cdef uint64_t[4] words
    for i in range(4):
        words[i] = key[i]
    hashes = np.empty(count, np.uint64)
    cdef uint64_t[::1] hash_of = hashes
    with nogil:
        for i in range(count):
            hash_of[i] = highway_hash(words, first + start_of[i], length_of[i])
    return hashes
