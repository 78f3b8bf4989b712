# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Read many small files with one call, without the GIL; ``small_files_py`` is the pure-Python twin."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

import numpy as np

from aiostream_data._native.small_files_py import check_files

cdef extern from *:
    """
    #define _FILE_OFFSET_BITS 64
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/stat.h>
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>

    enum { SMALL_CHANGED = -1, SMALL_NOT_A_FILE = -2 };

    #if defined(__APPLE__)
    #define SMALL_MTIME st_mtimespec
    #else
    #define SMALL_MTIME st_mtim
    #endif

    static int64_t small_mtime(const struct stat* status) {
        return (int64_t)status->SMALL_MTIME.tv_sec * 1000000000 + (int64_t)status->SMALL_MTIME.tv_nsec;
    }

    /* Read until the buffer is full or the file ends. Return the number of bytes, or -1 and set errno. */
    static int64_t small_fill(int file, char* target, int64_t nbytes) {
        int64_t done = 0;
        while (done < nbytes) {
            ssize_t got = pread(file, target + done, (size_t)(nbytes - done), (off_t)done);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return -1;
            if (got == 0) break;
            done += got;
        }
        return done;
    }

    /* Open a file, check it and advise the kernel to load it. Return its descriptor; else -1 and set *problem. */
    static int small_open(const char* path, int64_t nbytes, int64_t mtime_ns, int* problem) {
        struct stat status;
        int file;
        do file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); while (file < 0 && errno == EINTR);
        if (file < 0) { *problem = errno; return -1; }
        if (fstat(file, &status) != 0) *problem = errno;
        else if (!S_ISREG(status.st_mode)) *problem = SMALL_NOT_A_FILE;
        else if (status.st_size != nbytes || small_mtime(&status) != mtime_ns) *problem = SMALL_CHANGED;
        else return file;
        close(file);
        return -1;
    }

    /* Read an open file whole and close it. Return 0, an error number, or SMALL_CHANGED. */
    static int small_read(int file, char* target, int64_t nbytes, int64_t mtime_ns) {
        struct stat status;
        int problem = 0;
        int64_t got = small_fill(file, target, nbytes);
        if (got < 0) problem = errno;
        else if (got != nbytes) problem = SMALL_CHANGED;
        else if (fstat(file, &status) != 0) problem = errno;
        else if (status.st_size != nbytes || small_mtime(&status) != mtime_ns) problem = SMALL_CHANGED;
        close(file);
        return problem;
    }

    /* Return whether the page cache holds the last byte of a file, as far as the system can tell. */
    static int small_is_cached(int file, int64_t nbytes) {
    #if defined(__linux__) && defined(RWF_NOWAIT)
        char byte;
        struct iovec one = {&byte, 1};
        return nbytes == 0 || preadv2(file, &one, 1, (off_t)(nbytes - 1), RWF_NOWAIT) == 1;
    #else
        (void)file; (void)nbytes;
        return 1;
    #endif
    }

    static void small_will_need(int file) {
    #ifdef POSIX_FADV_WILLNEED
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED);
    #else
        (void)file;
    #endif
    }
    """
    int small_open(const char* path, int64_t nbytes, int64_t mtime_ns, int* problem) nogil
    int small_read(int file, char* target, int64_t nbytes, int64_t mtime_ns) nogil
    int small_is_cached(int file, int64_t nbytes) nogil
    void small_will_need(int file) nogil

cdef enum:
    AT_ONCE = 16


def read_small_files(list paths, mtimes_ns, places):
    """Read every file whole into its own buffer. Return one number per file: 0, or why it was not read."""
    check_files(paths, mtimes_ns, places)
    cdef Py_ssize_t count = len(paths), i, j, k
    problems = np.zeros(count, np.int32)
    if not count:
        return problems
    cdef const int64_t[::1] mtime = mtimes_ns
    cdef int[::1] problem = problems
    cdef const char** path = <const char**>malloc(count * sizeof(char*))
    cdef Py_buffer* place = <Py_buffer*>malloc(count * sizeof(Py_buffer))
    cdef Py_ssize_t held = 0
    cdef int waiting[AT_ONCE]
    cdef Py_ssize_t number[AT_ONCE]
    cdef int waits = 0, file
    try:
        if path == NULL or place == NULL:
            raise MemoryError
        for i in range(count):
            path[i] = <const char*>paths[i]
            PyObject_GetBuffer(places[i], &place[i], PyBUF_WRITABLE)
            held += 1
        with nogil:
            for i in range(count):
                file = small_open(path[i], place[i].len, mtime[i], &problem[i])
                if file < 0:
                    continue
                if small_is_cached(file, place[i].len):
                    problem[i] = small_read(file, <char*>place[i].buf, place[i].len, mtime[i])
                    continue
                # Load several files from the disk at once, and read them later.
                small_will_need(file)
                waiting[waits], number[waits] = file, i
                waits += 1
                if waits == AT_ONCE:
                    for k in range(waits):
                        j = number[k]
                        problem[j] = small_read(waiting[k], <char*>place[j].buf, place[j].len, mtime[j])
                    waits = 0
            for k in range(waits):
                j = number[k]
                problem[j] = small_read(waiting[k], <char*>place[j].buf, place[j].len, mtime[j])
    finally:
        for k in range(held):
            PyBuffer_Release(&place[k])
        free(place)
        free(path)
    return problems
