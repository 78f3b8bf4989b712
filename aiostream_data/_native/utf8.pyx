# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Validate UTF-8 text in rows of variable length; ``utf8_py`` is the pure-Python twin."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from aiostream_data._native.spans_py import check_bytes, check_spans

cdef enum:
    ASCII_NBYTES = 32  # bytes that the inner loop checks at once


def first_invalid_utf8(values, starts, lengths):
    """Return the first row that is not valid UTF-8, or -1; see the pure-Python twin."""
    check_bytes(values)
    check_spans(starts, lengths)
    cdef const unsigned char[::1] data = values
    cdef const int64_t[:] start_of = starts, length_of = lengths
    cdef Py_ssize_t count = start_of.shape[0], i
    cdef int64_t size = data.shape[0], bad = -1
    cdef const unsigned char* first = &data[0] if size else NULL
    for i in range(count):
        if length_of[i] > size - start_of[i]:
            raise IndexError(f"a row is outside {size} bytes")
    with nogil:
        for i in range(count):
            if length_of[i] and not _is_valid(first + start_of[i], length_of[i]):
                bad = i
                break
    return bad


cdef bint _is_valid(const unsigned char* text, int64_t nbytes) noexcept nogil:
    cdef int64_t i = 0
    cdef uint64_t word[4]
    cdef unsigned char lead, low, high
    while i < nbytes:
        if text[i] < 0x80:
            while i + ASCII_NBYTES <= nbytes:
                memcpy(word, text + i, ASCII_NBYTES)
                if (word[0] | word[1] | word[2] | word[3]) & 0x8080808080808080ULL:
                    break
                i += ASCII_NBYTES
            while i < nbytes and text[i] < 0x80:
                i += 1
            continue
        lead = text[i]
        low, high = 0x80, 0xBF  # range of the second byte
        if lead < 0xC2 or lead > 0xF4:  # a continuation, an overlong form, or above U+10FFFF
            return False
        if lead < 0xE0:
            if nbytes - i < 2 or text[i + 1] & 0xC0 != 0x80:
                return False
            i += 2
            continue
        if lead == 0xE0 or lead == 0xF0:
            low = 0xA0 if lead == 0xE0 else 0x90  # shorter forms exist below
        elif lead == 0xED or lead == 0xF4:
            high = 0x9F if lead == 0xED else 0x8F  # surrogates, or above U+10FFFF
        if nbytes - i < (3 if lead < 0xF0 else 4) or not low <= text[i + 1] <= high or text[i + 2] & 0xC0 != 0x80:
            return False
        if lead >= 0xF0 and text[i + 3] & 0xC0 != 0x80:
            return False
        i += 3 if lead < 0xF0 else 4
    return True
