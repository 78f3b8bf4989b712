# cython: boundscheck=False, wraparound=False, cdivision=True
"""Read the headers of tar archives without the GIL; ``tar_py`` is the pure-Python twin.

Each position is checked against the end of its range before it is read, and each size before it is used. The table of
members grows with the number of headers found, so memory is proportional to the size of the input.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

import numpy as np

from aiostream_data._native.tar_py import TarWalk

cdef extern from *:
    """
    #define _FILE_OFFSET_BITS 64
    #include <errno.h>
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>

    /* Read bytes of a file from the page cache. Return their number, or -1 if the system would have to wait. */
    static int64_t tar_read_cached(int file, unsigned char* target, int64_t nbytes, int64_t at) {
    #if defined(__linux__) && defined(RWF_NOWAIT)
        struct iovec one = {target, (size_t)nbytes};
        return (int64_t)preadv2(file, &one, 1, (off_t)at, RWF_NOWAIT);
    #else
        (void)file; (void)target; (void)nbytes; (void)at;
        return -1;
    #endif
    }
    """
    int64_t tar_read_cached(int file, unsigned char* target, int64_t nbytes, int64_t at) nogil

ctypedef const unsigned char *Bytes

cdef enum Verdict:
    MORE, END, BAD_CHECKSUM, BAD_SIZE, BAD_EXTENDED, BAD_GLOBAL, LONE_EXTENDED, FOUND, FULL

cdef enum Kind:
    SOUND, LINK, DEVICE, SPARSE, OTHER, DIRECTORY

cdef Py_ssize_t BLOCK = 512
cdef Py_ssize_t META_NBYTES = 1 << 20
cdef int64_t MOST = <int64_t> 1 << 62
cdef enum:
    COLUMNS = 11
    WINDOW_NBYTES = 4096
    NAME_NBYTES = 64
cdef Py_ssize_t FIRST_CAPACITY = 256

cdef struct Entry:
    Py_ssize_t first
    Py_ssize_t data
    int64_t next
    int64_t nbytes
    int kind
    bint is_sparse
    Bytes prefix
    Py_ssize_t prefix_nbytes
    Bytes path
    Py_ssize_t path_nbytes

cdef struct Output:
    int64_t *table
    Py_ssize_t count
    Py_ssize_t capacity
    unsigned char *names
    Py_ssize_t names_nbytes
    Py_ssize_t names_capacity


cdef Py_ssize_t text_nbytes(Bytes field, Py_ssize_t nbytes) noexcept nogil:
    cdef Bytes end = <Bytes> memchr(field, 0, nbytes)
    return nbytes if end == NULL else end - field


cdef int64_t octal(Bytes field, Py_ssize_t nbytes) noexcept nogil:
    """Return the number, or -1 if the field contains other characters."""
    cdef Py_ssize_t at = 0, stop = text_nbytes(field, nbytes)
    cdef int64_t value = 0
    while at < stop and field[at] == 32:
        at += 1
    while stop > at and field[stop - 1] == 32:
        stop -= 1
    while at < stop:
        if field[at] < 48 or field[at] > 55:
            return -1
        value = value * 8 + field[at] - 48
        at += 1
    return value


cdef int64_t number(Bytes field) noexcept nogil:
    """Return the number in a size field, in octal digits or in base 256; -1 if it is invalid or too large."""
    cdef Py_ssize_t at
    cdef int64_t value = 0
    if field[0] < 128:
        return octal(field, 12)
    if field[0] != 128:
        return -1
    for at in range(1, 12):
        if value > MOST >> 8:
            return -1
        value = value << 8 | field[at]
    return value if value <= MOST else -1


cdef bint is_empty(Bytes header) noexcept nogil:
    cdef Py_ssize_t at
    cdef unsigned char found = 0
    if header[0]:
        return False
    for at in range(BLOCK):
        found |= header[at]
    return found == 0


cdef bint is_header(Bytes header) noexcept nogil:
    cdef int64_t stored = octal(header + 148, 8)
    cdef uint32_t total = 0, high = 0
    cdef Py_ssize_t at
    if stored < 0:
        return False
    for at in range(BLOCK):
        total += header[at]
    for at in range(148, 156):
        total -= header[at]
    total += 8 * 32
    if stored == total:
        return True
    for at in range(BLOCK):
        high += header[at] >> 7
    for at in range(148, 156):
        high -= header[at] >> 7
    return stored == <int64_t> total - 256 * <int64_t> high


cdef bint decimal(Bytes text, Py_ssize_t nbytes, int64_t *value) noexcept nogil:
    cdef Py_ssize_t at
    if nbytes < 1 or nbytes > 19:
        return False
    value[0] = 0
    for at in range(nbytes):
        if text[at] < 48 or text[at] > 57 or value[0] > MOST // 10:
            return False
        value[0] = value[0] * 10 + text[at] - 48
    return value[0] <= MOST


cdef bint starts(Bytes text, Py_ssize_t nbytes, const char *word, Py_ssize_t word_nbytes) noexcept nogil:
    return nbytes >= word_nbytes and memcmp(text, word, word_nbytes) == 0


cdef Verdict apply(
    Entry *entry, unsigned char kind, Bytes name, Py_ssize_t name_nbytes, Bytes value, Py_ssize_t nbytes
) noexcept nogil:
    """Apply one PAX record to the member that follows it."""
    cdef bint is_sparse = starts(name, name_nbytes, b"GNU.sparse.", 11)
    cdef bint is_path = name_nbytes == 4 and starts(name, 4, b"path", 4)
    cdef bint is_size = name_nbytes == 4 and starts(name, 4, b"size", 4)
    if kind == c"g":
        return BAD_GLOBAL if is_sparse or is_path or is_size else FOUND
    if is_sparse:
        entry.is_sparse = True
    elif is_path:
        entry.path = value if nbytes else NULL
        entry.path_nbytes = text_nbytes(value, nbytes)
        while entry.path_nbytes and value[entry.path_nbytes - 1] == c"/":
            entry.path_nbytes -= 1
    elif is_size and nbytes:
        if not decimal(value, nbytes, &entry.nbytes):
            entry.nbytes = -1
            return BAD_SIZE
    return FOUND


cdef Verdict extend(Entry *entry, unsigned char kind, Bytes data, Py_ssize_t nbytes) noexcept nogil:
    """Apply an extended header to the member that follows it."""
    cdef Py_ssize_t start = 0, space, stop, equals
    cdef int64_t length
    cdef Verdict verdict
    if kind == c"L":
        entry.path = data
        entry.path_nbytes = text_nbytes(data, nbytes)
    if kind == c"L" or kind == c"K":
        return FOUND
    while start < nbytes and data[start]:
        space = start
        while space < nbytes and space < start + 10 and data[space] != 32:
            space += 1
        if space >= nbytes or space >= start + 10 or not decimal(data + start, space - start, &length):
            return BAD_EXTENDED
        if length > nbytes - start or start + length <= space + 1:
            return BAD_EXTENDED
        stop = start + length
        equals = space + 1
        while equals < stop and data[equals] != c"=":
            equals += 1
        if equals == stop or data[stop - 1] != 10:
            return BAD_EXTENDED
        verdict = apply(entry, kind, data + space + 1, equals - space - 1, data + equals + 1, stop - 2 - equals)
        if verdict != FOUND:
            return verdict
        start = stop
    return FOUND


cdef int kind_of(unsigned char kind, Bytes header) noexcept nogil:
    cdef Py_ssize_t nbytes
    if kind == 0:
        nbytes = text_nbytes(header, 100)
        return DIRECTORY if nbytes and header[nbytes - 1] == c"/" else SOUND
    if kind == c"0" or kind == c"7":
        return SOUND
    if kind == c"1" or kind == c"2":
        return LINK
    if kind == c"3" or kind == c"4" or kind == c"6":
        return DEVICE
    if kind == c"5":
        return DIRECTORY
    return SPARSE if kind == c"S" else OTHER


cdef void finish(Entry *entry, Bytes header, Py_ssize_t at, int64_t nbytes) noexcept nogil:
    entry.kind = kind_of(header[156], header)
    if entry.is_sparse and entry.kind == SOUND:
        entry.kind = SPARSE
    if entry.nbytes < 0:
        entry.nbytes = nbytes
    entry.data = at + BLOCK
    entry.next = at + BLOCK
    if entry.kind == SOUND or entry.kind == SPARSE or entry.kind == OTHER:
        entry.next += (entry.nbytes + BLOCK - 1) // BLOCK * BLOCK
    if entry.path == NULL:
        entry.path = header
        entry.path_nbytes = text_nbytes(header, 100)
        if memcmp(header + 257, b"ustar\0", 6) == 0:
            entry.prefix = header + 345
            entry.prefix_nbytes = text_nbytes(entry.prefix, 155)


cdef Verdict read_entry(Bytes data, Py_ssize_t at, Py_ssize_t stop, Entry *entry, Py_ssize_t *where) noexcept nogil:
    """Read the headers of the member at ``at``. Store the position of a problem, or the missing end, in ``where``."""
    cdef Bytes header
    cdef int64_t nbytes
    cdef Py_ssize_t after
    cdef unsigned char kind
    cdef Verdict verdict
    entry.first, entry.nbytes, entry.is_sparse = at, -1, False
    entry.path, entry.path_nbytes, entry.prefix, entry.prefix_nbytes = NULL, 0, NULL, 0
    while True:
        where[0] = at + BLOCK
        if at > stop - BLOCK:
            return MORE
        header = data + at
        where[0] = at
        if is_empty(header):
            return END if at == entry.first else LONE_EXTENDED
        if not is_header(header):
            return BAD_CHECKSUM
        nbytes = number(header + 124)
        if nbytes < 0:
            return BAD_SIZE
        kind = header[156]
        if kind != c"L" and kind != c"K" and kind != c"x" and kind != c"X" and kind != c"g":
            finish(entry, header, at, nbytes)
            return FOUND
        if nbytes > META_NBYTES or at + BLOCK + nbytes - entry.first > META_NBYTES:
            return BAD_EXTENDED
        after = at + BLOCK + (nbytes + BLOCK - 1) // BLOCK * BLOCK
        if after > stop:
            where[0] = after
            return MORE
        verdict = extend(entry, kind, header + BLOCK, nbytes)
        if verdict != FOUND:
            return verdict
        at = after


cdef int64_t hash_of(Bytes text, Py_ssize_t nbytes) noexcept nogil:
    cdef uint64_t value = <uint64_t> 0xCBF29CE484222325
    cdef Py_ssize_t at
    for at in range(nbytes):
        value = (value ^ text[at]) * <uint64_t> 0x100000001B3
    return <int64_t> value


cdef Py_ssize_t key_nbytes(Bytes path, Py_ssize_t nbytes) noexcept nogil:
    """Return the length of the key, which a dot follows, or -1 if the member belongs to no sample."""
    cdef Bytes slash = <Bytes> memchr(path, c"/", nbytes)
    cdef Py_ssize_t first = nbytes if slash == NULL else slash - path
    cdef Py_ssize_t base = nbytes, dot, at
    if first >= 4 and path[0] == c"_" and path[1] == c"_" and path[first - 1] == c"_" and path[first - 2] == c"_":
        return -1
    while base and path[base - 1] != c"/":
        base -= 1
    dot = base
    while dot < nbytes and path[dot] != c".":
        dot += 1
    if dot == nbytes:
        return -1
    if dot > base:
        return dot
    if base == 0:
        return -1
    at = base - 1
    while at and path[at - 1] != c"/":
        at -= 1
        if path[at] == c".":
            return -1
    return dot


cdef bint store(Output *out, Py_ssize_t row, Entry *entry) noexcept nogil:
    """Append a member to the table. Return False if there is no room for it."""
    cdef Py_ssize_t nbytes = entry.path_nbytes, key, at
    cdef int64_t *cells
    cdef unsigned char *path
    if entry.prefix_nbytes:
        nbytes += entry.prefix_nbytes + 1
    if out.count == out.capacity or out.names_capacity - out.names_nbytes < nbytes:
        return False
    path = out.names + out.names_nbytes
    if entry.prefix_nbytes:
        memcpy(path, entry.prefix, entry.prefix_nbytes)
        path[entry.prefix_nbytes] = c"/"
    memcpy(path + nbytes - entry.path_nbytes, entry.path, entry.path_nbytes)
    key = key_nbytes(path, nbytes)
    cells = out.table + out.count * COLUMNS
    out.count += 1
    cells[0], cells[1], cells[2], cells[3], cells[4] = row, entry.first, entry.data, entry.nbytes, entry.next
    cells[5], cells[6], cells[7], cells[8], cells[9], cells[10] = 0, -1, 0, 0, 0, entry.kind
    if key >= 0:
        for at in range(key + 1, nbytes):
            if 65 <= path[at] <= 90:
                path[at] += 32
        cells[5], cells[6], cells[7] = out.names_nbytes, key, nbytes - key - 1
        cells[8], cells[9] = hash_of(path, key), hash_of(path + key + 1, nbytes - key - 1)
        out.names_nbytes += nbytes
    return True


cdef Verdict walk(
    Bytes data, Py_ssize_t *at, Py_ssize_t stop, Py_ssize_t row, Output *out, Entry *entry, Py_ssize_t *where
) noexcept nogil:
    """Read members until the range ends or the table is full."""
    cdef Verdict verdict
    while True:
        verdict = read_entry(data, at[0], stop, entry, where)
        if verdict != FOUND:
            return verdict
        if entry.kind != DIRECTORY and not store(out, row, entry):
            return FULL
        at[0] = entry.next


def walk_tar(const unsigned char[::1] buffer, const int64_t[::1] starts, const int64_t[::1] stops):
    """Read all headers in ranges of ``buffer``. See ``tar_py.walk_tar``."""
    cdef Py_ssize_t row = 0, at = 0, where = 0, size = buffer.shape[0], rows = starts.shape[0]
    cdef Verdict verdict = MORE
    cdef Entry entry
    cdef Output out
    cdef Bytes data = &buffer[0] if size else NULL
    if stops.shape[0] != rows:
        raise ValueError("starts and stops must have the same length")
    for row in range(rows):
        if not 0 <= starts[row] <= stops[row] <= size:
            raise IndexError(f"bytes {starts[row]} to {stops[row]} are outside a buffer of {size}")
    table = np.empty((FIRST_CAPACITY, COLUMNS), np.int64)
    names = np.empty(64 * FIRST_CAPACITY, np.uint8)
    cdef int64_t[:, ::1] cells = table
    cdef unsigned char[::1] letters = names
    out.count, out.names_nbytes = 0, 0
    row = 0
    if rows:
        at = starts[0]
    while row < rows:
        out.table, out.capacity = &cells[0, 0], cells.shape[0]
        out.names, out.names_capacity = &letters[0], letters.shape[0]
        with nogil:
            while row < rows:
                verdict = walk(data, &at, stops[row], row, &out, &entry, &where)
                if verdict != MORE:
                    break
                row += 1
                if row < rows:
                    at = starts[row]
        if verdict != FULL:
            break
        table = cells = _grown(table, 2 * len(table))
        names = letters = _grown(names, 2 * len(names) + entry.path_nbytes + entry.prefix_nbytes + 1)
    members, used = table[: out.count].copy(), names[: out.names_nbytes].copy()
    if verdict == MORE:
        return TarWalk(members, used, at, where, <int> verdict, 0)
    return TarWalk(members, used, at, 0, <int> verdict, where)


def walk_tar_file(int file, int64_t start, int64_t stop, Py_ssize_t most):
    """Read the headers of cached members of a file. See ``tar_py.walk_tar_file``."""
    cdef unsigned char window[WINDOW_NBYTES]
    cdef Py_ssize_t local = 0, where = 0
    cdef int64_t at = 0, held = 0
    cdef Verdict verdict = MORE
    cdef Entry entry
    cdef Output out
    if start < 0 or stop < start or most < 1:
        raise ValueError(f"cannot read {most} members between bytes {start} and {stop}")
    table = np.empty((most, COLUMNS), np.int64)
    names = np.empty(NAME_NBYTES * most + WINDOW_NBYTES, np.uint8)
    cdef int64_t[:, ::1] cells = table
    cdef unsigned char[::1] letters = names
    out.table, out.count, out.capacity = &cells[0, 0], 0, most
    out.names, out.names_nbytes, out.names_capacity = &letters[0], 0, letters.shape[0]
    with nogil:
        while verdict == MORE:
            if local > held - BLOCK:
                at += local
                local = 0
                held = tar_read_cached(file, window, min(WINDOW_NBYTES, stop - start - at), start + at)
                if held < BLOCK:
                    break
            verdict = read_entry(window, local, held, &entry, &where)
            if verdict == MORE and local:
                at += local
                local = held = 0
                continue
            if verdict != FOUND or entry.next > stop - start - at:
                break
            verdict = MORE
            if entry.kind != DIRECTORY:
                if not store(&out, 0, &entry):
                    break
                out.table[(out.count - 1) * COLUMNS + 1] += at
                out.table[(out.count - 1) * COLUMNS + 2] += at
                out.table[(out.count - 1) * COLUMNS + 4] += at
            local = entry.next
    members, used = table[: out.count].copy(), names[: out.names_nbytes].copy()
    at += local
    if verdict == MORE or verdict == FOUND:
        return TarWalk(members, used, at, 0, <int> MORE, 0)
    return TarWalk(members, used, at, 0, <int> verdict, at - local + where)


def find_tar_header(const unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t stop):
    """Return the index of the next valid header. See ``tar_py.find_tar_header``."""
    cdef Py_ssize_t at = start
    cdef bint found = False
    if not 0 <= start <= stop <= buffer.shape[0]:
        raise IndexError(f"bytes {start} to {stop} are outside a buffer of {buffer.shape[0]}")
    cdef Bytes data = &buffer[0] if buffer.shape[0] else NULL
    with nogil:
        while at <= stop - BLOCK:
            found = data[at] != 0 and is_header(data + at)
            if found:
                break
            at += BLOCK
    return at if found else -1


cdef _grown(array, Py_ssize_t count):
    larger = np.empty((count, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
