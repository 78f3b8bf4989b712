# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Gather rows by index; ``gather_py`` is the pure-Python twin.

How this works. Each kernel has two passes. The first pass checks all indices without copying, so a bad index raises
with all arrays unchanged. The second pass copies. Both passes run without the GIL, unless the copy is so small that
reacquiring the GIL would take longer. Rows of 1, 2, 4, 8 and 16 bytes use an inline loop with a constant width, which
the compiler reduces to one load and one store. Arrays with object references (object, StringDType) are passed to the
twin, because copying their bytes would not update reference counts.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import numpy as np

from aiostream_data._native import gather_py as twin


cdef enum:
    KEEP_GIL_NBYTES = 1 << 18  # takes about 20 microseconds to copy; reacquiring the GIL takes at least as long
    KEEP_GIL_ROWS = 4096  # spans that are checked or copied in about as much time


cdef struct Source:
    const char* data
    int64_t rows


def take_rows(source, rows):
    """Return a new array with ``source[rows[i]]`` at index i. Negative row numbers are out of range."""
    if not source.flags.c_contiguous or _holds_references(source):
        return twin.take_rows(source, rows)
    rows = _indices(rows, np.int64)
    cdef Py_ssize_t count = len(rows), size = len(source), bad
    cdef const int64_t* at = <const int64_t*>_address(rows)
    out = np.empty((count, *source.shape[1:]), source.dtype)
    cdef size_t width = _row_width(source)
    cdef char* target = _address(out)
    cdef const char* data = _address(source)
    if <size_t>count * width <= KEEP_GIL_NBYTES:
        bad = _take(target, data, size, at, count, width)
    else:
        with nogil:
            bad = _take(target, data, size, at, count, width)
    if bad >= 0:
        raise IndexError(f"index {at[bad]} is outside 0 to {size - 1}")
    return out


def take_rows_many(sources, which, rows):
    """Return a new array with ``sources[which[i]][rows[i]]`` at index i. All sources share dtype and row shape."""
    twin.check_alike(sources)
    if _holds_references(sources[0]):
        return twin.take_rows_many(sources, which, rows)
    which, rows = _indices(which, np.int32), _indices(rows, np.int64)
    twin.check_lengths(which, rows)
    sources = [np.ascontiguousarray(source) for source in sources]
    cdef Py_ssize_t count = len(rows), kinds = len(sources), bad
    cdef const int32_t* source_of = <const int32_t*>_address(which)
    cdef const int64_t* at = <const int64_t*>_address(rows)
    cdef size_t width = _row_width(sources[0])
    out = np.empty((count, *sources[0].shape[1:]), sources[0].dtype)
    cdef char* target = _address(out)
    cdef Source* table = _table(sources)
    try:
        if <size_t>count * width <= KEEP_GIL_NBYTES:
            bad = _take_many(target, table, kinds, source_of, at, count, width)
        else:
            with nogil:
                bad = _take_many(target, table, kinds, source_of, at, count, width)
        if bad >= 0:
            raise IndexError(f"row {at[bad]} of array {source_of[bad]} does not exist")
        return out
    finally:
        free(table)


def compact(values, starts, lengths, new_array=np.empty):
    """Copy variable rows to contiguous memory. Return the new values and the new starts."""
    return compact_many([values], np.zeros(len(starts), np.int32), starts, lengths, new_array)


def compact_many(sources, which, starts, lengths, new_array=np.empty):
    """Concatenate ``sources[which[i]][starts[i] : starts[i] + lengths[i]]`` for all i. Return values and starts."""
    twin.check_alike(sources)
    if _holds_references(sources[0]):
        return twin.compact_many(sources, which, starts, lengths, new_array)
    which, starts, lengths = _indices(which, np.int32), _indices(starts, np.int64), _indices(lengths, np.int64)
    twin.check_lengths(which, starts, lengths)
    sources = [np.ascontiguousarray(source) for source in sources]
    cdef Py_ssize_t count = len(starts), kinds = len(sources), bad
    cdef const int32_t* source_of = <const int32_t*>_address(which)
    cdef const int64_t* begin = <const int64_t*>_address(starts)
    cdef const int64_t* size = <const int64_t*>_address(lengths)
    new_starts = np.empty(count, np.int64)
    cdef int64_t* new_begin = <int64_t*>_address(new_starts)
    cdef size_t width = _row_width(sources[0])
    cdef int64_t total = 0
    cdef char* target
    cdef Source* table = _table(sources)
    try:
        if count <= KEEP_GIL_ROWS:
            bad = _first_bad_span(table, kinds, source_of, begin, size, count, new_begin, &total)
        else:
            with nogil:
                bad = _first_bad_span(table, kinds, source_of, begin, size, count, new_begin, &total)
        if bad >= 0:
            raise IndexError(f"row {begin[bad]}+{size[bad]} of array {source_of[bad]} does not exist")
        out = new_array((total, *sources[0].shape[1:]), sources[0].dtype)
        if len(out) != total or not out.flags.c_contiguous:
            raise ValueError(f"the new array has {len(out)} rows instead of {total}, or gaps")
        target = _address(out)
        if count <= KEEP_GIL_ROWS and <size_t>total * width <= KEEP_GIL_NBYTES:
            _copy_spans(target, total, table, source_of, begin, size, new_begin, count, width)
        else:
            with nogil:
                _copy_spans(target, total, table, source_of, begin, size, new_begin, count, width)
        return out, new_starts
    finally:
        free(table)


def copy_arrays(targets, sources):
    """Copy each source to its target, all without the GIL. See ``gather_py.copy_arrays``."""
    twin.check_copies(targets, sources)
    if any(map(_holds_references, sources)):
        return twin.copy_arrays(targets, sources)
    cdef Py_ssize_t count = len(sources), i
    cdef size_t total = 0
    cdef char** places = <char**>malloc(2 * count * sizeof(char*) + count * sizeof(size_t) + 1)
    if places == NULL:
        raise MemoryError
    cdef size_t* sizes = <size_t*>(places + 2 * count)
    try:
        for i in range(count):
            places[2 * i], places[2 * i + 1] = _address(targets[i]), _address(sources[i])
            sizes[i] = sources[i].nbytes
            total += sizes[i]
        if total <= KEEP_GIL_NBYTES:
            for i in range(count):
                memcpy(places[2 * i], places[2 * i + 1], sizes[i])
        else:
            with nogil:
                for i in range(count):
                    memcpy(places[2 * i], places[2 * i + 1], sizes[i])
    finally:
        free(places)


def exchange_rows(buffer, slots, incoming):
    """Replace ``buffer[slots[i]]`` by ``incoming[i]``, for each i in order. Return the replaced rows."""
    twin.check_alike([buffer, incoming])
    if not buffer.flags.c_contiguous or _holds_references(buffer):
        return twin.exchange_rows(buffer, slots, incoming)
    if not buffer.flags.writeable:
        raise ValueError("the buffer is read-only")
    slots = _indices(slots, np.int64)
    twin.check_lengths(slots, incoming)
    if np.may_share_memory(buffer, incoming):
        incoming = incoming.copy()
    incoming = np.ascontiguousarray(incoming)
    cdef Py_ssize_t count = len(slots), size = len(buffer), bad
    cdef const int64_t* at = <const int64_t*>_address(slots)
    out = np.empty(incoming.shape, incoming.dtype)
    cdef size_t width = _row_width(buffer)
    cdef char* target = _address(out)
    cdef char* held = _address(buffer)
    cdef const char* data = _address(incoming)
    if <size_t>count * width <= KEEP_GIL_NBYTES:
        bad = _exchange(target, held, size, at, data, count, width)
    else:
        with nogil:
            bad = _exchange(target, held, size, at, data, count, width)
    if bad >= 0:
        raise IndexError(f"slot {at[bad]} is outside 0 to {size - 1}")
    return out


def exchange_spans(arena, Py_ssize_t used, held_starts, held_lengths, slots, values, starts, lengths):
    """Replace the span of each slot by an incoming span, in order; see the pure-Python twin."""
    twin.check_alike([arena, values])
    if _holds_references(arena):
        return twin.exchange_spans(arena, used, held_starts, held_lengths, slots, values, starts, lengths)
    twin.check_arena(arena, held_starts, held_lengths)
    slots, starts, lengths = _indices(slots, np.int64), _indices(starts, np.int64), _indices(lengths, np.int64)
    twin.check_lengths(slots, starts, lengths)
    values = np.ascontiguousarray(values)
    cdef Py_ssize_t count = len(slots), held_rows = len(held_starts), bad
    cdef const int64_t* at = <const int64_t*>_address(slots)
    cdef const int64_t* begin = <const int64_t*>_address(starts)
    cdef const int64_t* size = <const int64_t*>_address(lengths)
    cdef int64_t* held_begin = <int64_t*>_address(held_starts)
    cdef int64_t* held_size = <int64_t*>_address(held_lengths)
    cdef Source incoming = Source(_address(values), len(values))
    cdef Source held = Source(_address(arena), len(arena))
    cdef size_t width = _row_width(arena)
    cdef int64_t total = 0, given = 0
    which = np.zeros(count, np.int32)
    cdef const int32_t* only = <const int32_t*>_address(which)
    new_starts, old_starts, old_lengths, out_starts = (np.empty(count, np.int64) for _ in range(4))
    cdef int64_t* new_begin = <int64_t*>_address(new_starts)
    cdef int64_t* old_begin = <int64_t*>_address(old_starts)
    cdef int64_t* old_size = <int64_t*>_address(old_lengths)
    cdef int64_t* out_begin = <int64_t*>_address(out_starts)
    with nogil:
        bad = _first_outside(at, count, held_rows)
        if bad < 0:
            bad = _first_bad_span(&incoming, 1, only, begin, size, count, new_begin, &total)
    if bad >= 0:
        raise IndexError(f"slot {at[bad]} or row {begin[bad]}+{size[bad]} does not exist")
    if not 0 <= used <= held.rows - total:
        raise IndexError(f"{total} rows do not fit behind row {used} of an arena of {held.rows}")
    with nogil:
        _copy_spans(<char*>held.data + <size_t>used * width, total, &incoming, only, begin, size, new_begin, count, width)
        _exchange_spans(held_begin, held_size, at, used, new_begin, size, old_begin, old_size, count)
        bad = _first_bad_span(&held, 1, only, old_begin, old_size, count, out_begin, &given)
    if bad >= 0:
        raise IndexError(f"slot {at[bad]} holds a row outside the arena")
    out = np.empty((given, *arena.shape[1:]), arena.dtype)
    cdef char* target = _address(out)
    with nogil:
        _copy_spans(target, given, &held, only, old_begin, old_size, out_begin, count, width)
    return out, out_starts, old_lengths, used + total


# -- lengths of rows: these kernels keep the GIL, because they take microseconds -----------------


def total_length(const int64_t[:] lengths):
    """Return the sum of all lengths. See ``gather_py.total_length``."""
    cdef int64_t total = 0
    cdef Py_ssize_t i
    for i in range(lengths.shape[0]):
        total += lengths[i]
    return total


def length_range(const int64_t[:] lengths):
    """Return the least and the greatest length. See ``gather_py.length_range``."""
    if not lengths.shape[0]:
        raise ValueError("no rows have no least length")
    cdef int64_t least = lengths[0], most = lengths[0]
    cdef Py_ssize_t i
    for i in range(lengths.shape[0]):
        least = min(least, lengths[i])
        most = max(most, lengths[i])
    return least, most


def are_packed(const int64_t[:] starts, const int64_t[:] lengths):
    """Return True if each row begins where the row before it ends. See ``gather_py.are_packed``."""
    cdef Py_ssize_t i
    if starts.shape[0] != lengths.shape[0]:
        raise ValueError(f"{starts.shape[0]} starts and {lengths.shape[0]} lengths")
    for i in range(1, starts.shape[0]):
        if starts[i] != starts[i - 1] + lengths[i - 1]:
            return False
    return True


# -- memory of arrays --------------------------------------------------------------------------


cdef bint _holds_references(array):
    dtype = array.dtype
    return dtype.hasobject or dtype.kind == "T"


cdef size_t _row_width(array):
    """Return the size in bytes of one row of a C-contiguous array."""
    cdef size_t width = array.dtype.itemsize
    for extent in array.shape[1:]:
        width *= <size_t>extent
    return width


cdef object _indices(array, dtype):
    """Return a contiguous index vector. Require the exact ``dtype``, because a cast could make a bad index valid."""
    if array.ndim != 1 or array.dtype != dtype:
        raise TypeError(f"expected a vector of {np.dtype(dtype)}, got {array.ndim} axes of {array.dtype}")
    return np.ascontiguousarray(array)


cdef char* _address(array) except? NULL:
    """Return the data address of a C-contiguous array. The caller must keep the array alive.

    The array is viewed as uint8, because the buffer protocol does not support datetime64.
    """
    cdef Py_buffer view
    if array.nbytes == 0:
        return <char*>1  # not NULL, and never dereferenced
    PyObject_GetBuffer(array.reshape(-1).view(np.uint8), &view, PyBUF_SIMPLE)
    cdef char* address = <char*>view.buf
    PyBuffer_Release(&view)
    return address


cdef Source* _table(sources) except NULL:
    """Return a table of the sources' addresses and row counts. The caller must free it."""
    cdef Source* table = <Source*>malloc(len(sources) * sizeof(Source))
    if table == NULL:
        raise MemoryError
    try:
        for k, source in enumerate(sources):
            table[<Py_ssize_t>k].data = _address(source)
            table[<Py_ssize_t>k].rows = len(source)
    except BaseException:
        free(table)
        raise
    return table


# -- checks: return the first bad position, or -1 ----------------------------------------------


cdef Py_ssize_t _first_outside(const int64_t* at, Py_ssize_t count, int64_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if <uint64_t>at[i] >= <uint64_t>size:  # a negative index becomes a huge unsigned number
            return i
    return -1


cdef Py_ssize_t _first_outside_many(
    const Source* table, Py_ssize_t kinds, const int32_t* which, const int64_t* at, Py_ssize_t count
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if which[i] < 0 or which[i] >= kinds or <uint64_t>at[i] >= <uint64_t>table[which[i]].rows:
            return i
    return -1


cdef Py_ssize_t _first_bad_span(
    const Source* table, Py_ssize_t kinds, const int32_t* which, const int64_t* begin, const int64_t* size,
    Py_ssize_t count, int64_t* new_begin, int64_t* total,
) noexcept nogil:
    """Find the first invalid span. Also compute the target positions ``new_begin`` and the ``total`` length."""
    cdef Py_ssize_t i
    for i in range(count):
        if which[i] < 0 or which[i] >= kinds or begin[i] < 0 or size[i] < 0:
            return i
        # begin + size could overflow, but rows - size cannot. The sum of all sizes must not overflow.
        if begin[i] > table[which[i]].rows - size[i] or size[i] > INT64_MAX - total[0]:
            return i
        new_begin[i] = total[0]
        total[0] += size[i]
    return -1


# -- copies ------------------------------------------------------------------------------------


cdef inline void _copy_taken(
    char* out, const char* source, const int64_t* rows, Py_ssize_t count, size_t width
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        memcpy(out + <size_t>i * width, source + <size_t>rows[i] * width, width)


cdef inline void _copy_taken_many(
    char* out, const Source* table, const int32_t* which, const int64_t* rows, Py_ssize_t count, size_t width
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        memcpy(out + <size_t>i * width, table[which[i]].data + <size_t>rows[i] * width, width)


cdef void _copy_spans(
    char* out, int64_t out_rows, const Source* table, const int32_t* which, const int64_t* begin, const int64_t* size,
    const int64_t* new_begin, Py_ssize_t count, size_t width,
) noexcept nogil:
    """Copy all spans. If both arrays have room, copy 32 bytes for a short span; the next spans overwrite the excess."""
    cdef Py_ssize_t i
    cdef Source source
    cdef size_t nbytes, start, target
    cdef size_t out_nbytes = <size_t>out_rows * width
    for i in range(count):
        source = table[which[i]]
        nbytes, start, target = <size_t>size[i] * width, <size_t>begin[i] * width, <size_t>new_begin[i] * width
        if nbytes <= 32 and out_nbytes - target >= 32 and <size_t>source.rows * width - start >= 32:
            memcpy(out + target, source.data + start, 32)
        else:
            memcpy(out + target, source.data + start, nbytes)


cdef inline void _exchange_rows(
    char* out, char* held, const int64_t* slots, const char* incoming, Py_ssize_t count, size_t width
) noexcept nogil:
    cdef Py_ssize_t i
    cdef char* slot
    for i in range(count):
        slot = held + <size_t>slots[i] * width
        memcpy(out + <size_t>i * width, slot, width)
        memcpy(slot, incoming + <size_t>i * width, width)


cdef void _exchange_spans(
    int64_t* held_begin, int64_t* held_size, const int64_t* slots, int64_t used, const int64_t* new_begin,
    const int64_t* size, int64_t* old_begin, int64_t* old_size, Py_ssize_t count,
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        old_begin[i], old_size[i] = held_begin[slots[i]], held_size[slots[i]]
        held_begin[slots[i]], held_size[slots[i]] = used + new_begin[i], size[i]


# -- check, then copy: return the first bad position, with nothing copied, or -1 ----------------


cdef Py_ssize_t _take(
    char* out, const char* source, int64_t size, const int64_t* rows, Py_ssize_t count, size_t width
) noexcept nogil:
    cdef Py_ssize_t bad = _first_outside(rows, count, size)
    if bad >= 0:
        return bad
    if width == 8:
        _copy_taken(out, source, rows, count, 8)
    elif width == 4:
        _copy_taken(out, source, rows, count, 4)
    elif width == 16:
        _copy_taken(out, source, rows, count, 16)
    elif width == 1:
        _copy_taken(out, source, rows, count, 1)
    elif width == 2:
        _copy_taken(out, source, rows, count, 2)
    else:
        _copy_taken(out, source, rows, count, width)
    return -1


cdef Py_ssize_t _take_many(
    char* out, const Source* table, Py_ssize_t kinds, const int32_t* which, const int64_t* rows, Py_ssize_t count,
    size_t width,
) noexcept nogil:
    cdef Py_ssize_t bad = _first_outside_many(table, kinds, which, rows, count)
    if bad >= 0:
        return bad
    if width == 8:
        _copy_taken_many(out, table, which, rows, count, 8)
    elif width == 4:
        _copy_taken_many(out, table, which, rows, count, 4)
    elif width == 16:
        _copy_taken_many(out, table, which, rows, count, 16)
    elif width == 1:
        _copy_taken_many(out, table, which, rows, count, 1)
    elif width == 2:
        _copy_taken_many(out, table, which, rows, count, 2)
    else:
        _copy_taken_many(out, table, which, rows, count, width)
    return -1


cdef Py_ssize_t _exchange(
    char* out, char* held, int64_t size, const int64_t* slots, const char* incoming, Py_ssize_t count, size_t width
) noexcept nogil:
    cdef Py_ssize_t bad = _first_outside(slots, count, size)
    if bad >= 0:
        return bad
    if width == 8:
        _exchange_rows(out, held, slots, incoming, count, 8)
    elif width == 4:
        _exchange_rows(out, held, slots, incoming, count, 4)
    elif width == 16:
        _exchange_rows(out, held, slots, incoming, count, 16)
    elif width == 1:
        _exchange_rows(out, held, slots, incoming, count, 1)
    elif width == 2:
        _exchange_rows(out, held, slots, incoming, count, 2)
    else:
        _exchange_rows(out, held, slots, incoming, count, width)
    return -1
