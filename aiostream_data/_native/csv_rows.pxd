"""Readers of numbers, shared by the parsers of CSV and JSON. They read the whole text from ``p`` to ``stop``."""

from libc.stdint cimport int64_t, uint64_t

cdef enum Code:
    FINE, FIELD_COUNT, BAD_VALUE, OUT_OF_RANGE, TEXT_AFTER_QUOTE, OPEN_QUOTE

cdef Code read_integer(
    const unsigned char *p, const unsigned char *stop, uint64_t most, uint64_t least, uint64_t *found
) noexcept nogil
cdef double nearest(uint64_t digits, int64_t power) noexcept nogil
cdef Code read_float(const unsigned char *p, const unsigned char *stop, double *found) noexcept nogil
