"""Readers for the protobuf wire format, shared by the native parsers. They never read beyond the enclosing message.

Each reader takes the bytes, the position to read at and the end of the enclosing message. It returns the position after
the field, or ``-1 - at`` if the bytes at ``at`` are damaged.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef inline int64_t read_varint(const uint8_t* base, int64_t at, int64_t stop, uint64_t* value) noexcept nogil:
    cdef uint64_t result = 0
    cdef int shift = 0
    cdef int64_t position = at
    while position < stop and shift < 70:
        result |= (<uint64_t>(base[position] & 0x7F)) << shift
        shift += 7
        position += 1
        if base[position - 1] < 0x80:
            value[0] = result
            return position
    return -1 - at


cdef inline int64_t read_tag(const uint8_t* base, int64_t at, int64_t stop, uint64_t* tag) noexcept nogil:
    cdef int64_t after
    if at < stop and 8 <= base[at] < 0x80:
        tag[0] = base[at]
        return at + 1
    after = read_varint(base, at, stop, tag)
    if after >= 0 and (tag[0] < 8 or tag[0] >> 32 != 0):
        return -1 - at
    return after


cdef inline int64_t read_length(const uint8_t* base, int64_t at, int64_t stop, int64_t* length) noexcept nogil:
    """Read the length of a delimited field. The length never exceeds the rest of the message."""
    cdef uint64_t value = 0
    cdef int64_t after
    if at < stop and base[at] < 0x80:
        value = base[at]
        after = at + 1
    else:
        after = read_varint(base, at, stop, &value)
        if after < 0:
            return after
    if value > <uint64_t>(stop - after):
        return -1 - at
    length[0] = <int64_t>value
    return after


cdef inline int64_t skip_field(const uint8_t* base, int64_t at, int64_t stop, uint64_t tag) noexcept nogil:
    cdef uint64_t value = 0
    cdef int64_t length = 0
    cdef int64_t after
    cdef int wire_type = <int>(tag & 7)
    if wire_type == 0:
        return read_varint(base, at, stop, &value)
    if wire_type == 2:
        after = read_length(base, at, stop, &length)
        return after + length if after >= 0 else after
    if wire_type == 1 or wire_type == 5:
        length = 8 if wire_type == 1 else 4
        return at + length if length <= stop - at else -1 - at
    return -1 - at
