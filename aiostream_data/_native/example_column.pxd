"""Column of one wanted feature during parsing: reads the values of a record and completes its row.

A reader returns the position after the bytes it read, ``-1 - at`` for damage at ``at``, or ``INT64_MIN`` if memory is
exhausted.
"""

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset

from aiostream_data._native.wire cimport read_length, read_tag, read_varint, skip_field

cdef enum:
    KIND_BYTES = 1
    KIND_FLOAT = 2
    KIND_INT64 = 3
    CODE_WRONG_KIND = 2
    CODE_WRONG_COUNT = 3
    CODE_MISSING = 4


cdef struct Column:
    const uint8_t* name
    int64_t name_nbytes
    int kind
    int64_t size      # values per row; negative: any number
    bint required
    int64_t* counts   # one per row, owned by NumPy
    int64_t* longs    # INT64: values; BYTES: offsets. This and the next two: C memory if size is negative, else NumPy's
    int64_t* nbytes   # BYTES: length of each value
    uint8_t* floats   # FLOAT: raw bits
    int64_t capacity  # number of values that fit
    int64_t first     # index of this row's first value
    int64_t count     # number of values found in this row
    int found         # kind found in this row, 0 for none


cdef inline bint grow(void** memory, int64_t item_nbytes, int64_t capacity) noexcept nogil:
    cdef void* grown = realloc(memory[0], <size_t>(item_nbytes * capacity))
    if grown == NULL:
        return False
    memory[0] = grown
    return True


cdef inline bint make_room(Column* column, int64_t more) noexcept nogil:
    """Make room for ``more`` values of this row. ``more`` never exceeds the number of input bytes of the values."""
    cdef int64_t needed = column.first + column.count + more
    cdef int64_t capacity
    if needed <= column.capacity:
        return True
    capacity = max(needed, column.capacity + column.capacity // 2, 64)
    if column.kind == KIND_FLOAT:
        if not grow(<void**>&column.floats, 4, capacity):
            return False
    elif not grow(<void**>&column.longs, 8, capacity):
        return False
    if column.kind == KIND_BYTES and not grow(<void**>&column.nbytes, 8, capacity):
        return False
    column.capacity = capacity
    return True


cdef inline bint may_write(Column* column, int64_t count) noexcept nogil:
    """Return True if ``count`` more values may be stored. Excess values of a sized feature are only counted."""
    return column.size < 0 or column.count + count <= column.size


cdef inline int64_t read_bytes_list(const uint8_t* base, int64_t at, int64_t stop, Column* column) noexcept nogil:
    cdef uint64_t tag = 0
    cdef int64_t length = 0
    while at < stop:
        at = read_tag(base, at, stop, &tag)
        if at < 0:
            return at
        if tag != 0x0A:
            at = skip_field(base, at, stop, tag)
            if at < 0:
                return at
            continue
        at = read_length(base, at, stop, &length)
        if at < 0:
            return at
        if may_write(column, 1):
            if not make_room(column, 1):
                return INT64_MIN
            column.longs[column.first + column.count] = at
            column.nbytes[column.first + column.count] = length
        column.count += 1
        at += length
    return at


cdef inline int64_t read_float_list(const uint8_t* base, int64_t at, int64_t stop, Column* column) noexcept nogil:
    cdef uint64_t tag = 0
    cdef int64_t length = 0
    while at < stop:
        at = read_tag(base, at, stop, &tag)
        if at < 0:
            return at
        if tag == 0x0A:
            at = read_length(base, at, stop, &length)
            if at < 0:
                return at
        elif tag == 0x0D:
            length = 4
        else:
            at = skip_field(base, at, stop, tag)
            if at < 0:
                return at
            continue
        if length % 4 != 0 or length > stop - at:
            return -1 - at
        if may_write(column, length // 4):
            if not make_room(column, length // 4):
                return INT64_MIN
            if length:
                memcpy(column.floats + 4 * (column.first + column.count), base + at, <size_t>length)
        column.count += length // 4
        at += length
    return at


cdef inline int64_t read_packed(const uint8_t* base, int64_t at, int64_t stop, Column* column) noexcept nogil:
    """Read varints up to ``stop``. The caller made room for one value per byte, unless the feature has a fixed size."""
    cdef uint64_t value = 0
    cdef int64_t* out = column.longs + column.first
    cdef int64_t count = column.count
    cdef int64_t places = column.size if column.size >= 0 else column.capacity - column.first
    while at < stop:
        if base[at] < 0x80:
            value = base[at]
            at += 1
        else:
            at = read_varint(base, at, stop, &value)
            if at < 0:
                return at
        if count < places:
            out[count] = <int64_t>value
        count += 1
    column.count = count
    return at


cdef inline int64_t read_int64_list(const uint8_t* base, int64_t at, int64_t stop, Column* column) noexcept nogil:
    cdef uint64_t tag = 0
    cdef uint64_t value = 0
    cdef int64_t length = 0
    while at < stop:
        at = read_tag(base, at, stop, &tag)
        if at < 0:
            return at
        if tag == 0x0A:
            at = read_length(base, at, stop, &length)
            if at < 0:
                return at
            if column.size < 0 and not make_room(column, length):
                return INT64_MIN
            at = read_packed(base, at, at + length, column)
        elif tag == 0x08:
            at = read_varint(base, at, stop, &value)
            if at >= 0 and may_write(column, 1):
                if not make_room(column, 1):
                    return INT64_MIN
                column.longs[column.first + column.count] = <int64_t>value
            column.count += 1
        else:
            at = skip_field(base, at, stop, tag)
        if at < 0:
            return at
    return at


cdef inline void clear_places(Column* column) noexcept nogil:
    """Set the row's values to 0, because an entry that was replaced later may have written values there."""
    if column.kind == KIND_FLOAT:
        memset(column.floats + 4 * column.first, 0, <size_t>(4 * column.size))
    else:
        memset(column.longs + column.first, 0, <size_t>(8 * column.size))
    if column.kind == KIND_BYTES:
        memset(column.nbytes + column.first, 0, <size_t>(8 * column.size))


cdef inline int settle_row(Column* column, int64_t row, int64_t* found) noexcept nogil:
    """Check and complete the current row of this column. Return a fault code, or 0."""
    cdef int64_t width = column.size if column.size >= 0 else column.count
    if column.found == 0:
        if column.required:
            found[0] = 0
            return CODE_MISSING
        column.counts[row] = -1
        if column.size >= 0:
            clear_places(column)
            column.first += column.size
        return 0
    if column.found != column.kind:
        found[0] = column.found
        return CODE_WRONG_KIND
    if column.count != width:
        found[0] = column.count
        return CODE_WRONG_COUNT
    column.counts[row] = width
    column.first += width
    return 0
