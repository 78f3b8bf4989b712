# cython: boundscheck=False, wraparound=False, cdivision=True
"""Parse JSON records to typed columns without the GIL; ``json_rows_py`` is the pure-Python twin.

Each position is checked against the end of its record before it is read. C recursion follows the schema alone: values
of other keys are skipped by a loop. Output grows with the number of records, and with the bytes of lists.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

import numpy as np

from aiostream_data._native.csv_rows cimport FINE as READ
from aiostream_data._native.csv_rows cimport nearest, read_float, read_integer
from aiostream_data._native.json_rows_py import JsonFault

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    /* Index of the first quote, backslash or control character in data[at:stop], or stop. */
    static inline Py_ssize_t asd_end_of_plain(const unsigned char *data, Py_ssize_t at, Py_ssize_t stop) {
    #if defined(__SSE2__)
        const __m128i quotes = _mm_set1_epi8('"'), slashes = _mm_set1_epi8('\\\\'), controls = _mm_set1_epi8(0x1F);
        while (stop - at >= 16) {
            __m128i text = _mm_loadu_si128((const __m128i *) (data + at));
            __m128i found = _mm_or_si128(_mm_cmpeq_epi8(text, quotes), _mm_cmpeq_epi8(text, slashes));
            int mask = _mm_movemask_epi8(_mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(text, controls), text)));
            if (mask) return at + __builtin_ctz(mask);
            at += 16;
        }
    #endif
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        const uint64_t ones = 0x0101010101010101ULL, tops = 0x8080808080808080ULL;
        while (stop - at >= 8) {
            uint64_t word, quote, slash, found;
            memcpy(&word, data + at, 8);
            quote = word ^ (ones * '"');
            slash = word ^ (ones * '\\\\');
            found = (((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((word - ones * 0x20) & ~word)) & tops;
            if (found) return at + (__builtin_ctzll(found) >> 3);
            at += 8;
        }
    #endif
        while (at < stop && data[at] != '"' && data[at] != '\\\\' && data[at] >= 0x20) at++;
        return at;
    }
    static const double ASD_TENS[23] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22,
    };
    """
    const double ASD_TENS[23]
    Py_ssize_t asd_end_of_plain(const unsigned char *data, Py_ssize_t at, Py_ssize_t stop) nogil

cdef enum Kind:
    SKIPPED, TEXT, BOOL, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, OBJECT

cdef enum:
    FAULTY = -1
    MOST_DEPTH = 200  # as in json_rows_py
    FIRST_ITEMS = 1024
    MOST_DIGITS = 19  # that fit into 64 bits
    MOST_EXPONENT = 1 << 20

cdef enum Fault:
    NO_FAULT, MALFORMED, WRONG_TYPE, OUT_OF_RANGE, TOO_DEEP, NO_MEMORY

cdef struct Field:
    const unsigned char *key
    Py_ssize_t nbytes
    Py_ssize_t node

cdef struct Node:
    Kind kind
    bint is_list
    Field *fields
    Py_ssize_t count       # number of fields
    Py_ssize_t longest     # length of the longest key
    Py_ssize_t behind      # number of the first node that is not inside this object
    void *values           # numbers; a list's are C memory, others NumPy's
    int64_t *text_starts   # text; as ``values``
    int64_t *text_lengths
    int64_t *list_starts
    int64_t *list_lengths
    uint8_t *valid
    Py_ssize_t itemsize
    Py_ssize_t used        # items of a list's column
    Py_ssize_t capacity
    uint64_t largest
    uint64_t least
    bint escapes

cdef struct Number:
    uint64_t digits   # the first digits, without leading zeros
    int64_t power     # the number is digits * 10**power, apart from digits that do not fit
    int used          # number of digits
    bint is_exact
    bint is_integer
    bint is_negative

cdef struct Parser:
    const unsigned char *data
    Py_ssize_t stop
    Py_ssize_t row
    Node *nodes
    unsigned char *scratch  # for keys with escapes
    Fault code
    Py_ssize_t place
    Py_ssize_t node


cdef Py_ssize_t fail(Parser *to, Fault code, Py_ssize_t place, Py_ssize_t node) noexcept nogil:
    to.code, to.place, to.node = code, place, node
    return FAULTY


cdef inline Py_ssize_t behind_space(const unsigned char *data, Py_ssize_t at, Py_ssize_t stop) noexcept nogil:
    while at < stop and (data[at] == 32 or data[at] == 9 or data[at] == 13 or data[at] == 10):
        at += 1
    return at


# -- strings

cdef inline int hex_digit(unsigned char byte) noexcept nogil:
    if 48 <= byte <= 57:
        return byte - 48
    byte |= 0x20
    return byte - 87 if 97 <= byte <= 102 else -1


cdef inline int hex_number(const unsigned char *data, Py_ssize_t at, Py_ssize_t stop) noexcept nogil:
    """Return the value of four hexadecimal digits, or -1."""
    cdef int value = 0, digit
    cdef Py_ssize_t i
    if stop - at < 4:
        return -1
    for i in range(4):
        digit = hex_digit(data[at + i])
        if digit < 0:
            return -1
        value = 16 * value + digit
    return value


cdef Py_ssize_t behind_escape(const unsigned char *data, Py_ssize_t at, Py_ssize_t stop) noexcept nogil:
    """Return the index after the escape sequence whose backslash is at ``at``, or FAULTY."""
    cdef unsigned char byte
    cdef int unit
    if at + 1 >= stop:
        return FAULTY
    byte = data[at + 1]
    if byte == 117:
        unit = hex_number(data, at + 2, stop)
        if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
            return FAULTY
        if 0xD800 <= unit <= 0xDBFF:
            if stop - at < 12 or data[at + 6] != 92 or data[at + 7] != 117:
                return FAULTY
            unit = hex_number(data, at + 8, stop)
            return at + 12 if 0xDC00 <= unit <= 0xDFFF else FAULTY
        return at + 6
    if (
        byte == 34 or byte == 92 or byte == 47 or byte == 98
        or byte == 102 or byte == 110 or byte == 114 or byte == 116
    ):
        return at + 2
    return FAULTY


cdef inline Py_ssize_t end_of_string(Parser *to, Py_ssize_t at, bint *escaped) noexcept nogil:
    """Return the index of the quote that closes the string whose first character is at ``at``."""
    cdef Py_ssize_t behind
    escaped[0] = False
    while True:
        at = asd_end_of_plain(to.data, at, to.stop)
        if at < to.stop and to.data[at] == 34:
            return at
        if at == to.stop or to.data[at] != 92:
            return fail(to, MALFORMED, at, 0)
        escaped[0] = True
        behind = behind_escape(to.data, at, to.stop)
        if behind < 0:
            return fail(to, MALFORMED, at, 0)
        at = behind


cdef Py_ssize_t unescaped(const unsigned char *data, Py_ssize_t at, Py_ssize_t stop, unsigned char *out) noexcept nogil:
    """Write a valid string without its escapes, which are never shorter. Return the number of bytes written."""
    cdef Py_ssize_t end = 0, plain
    cdef unsigned char byte
    cdef int code
    while at < stop:
        plain = asd_end_of_plain(data, at, stop)
        memcpy(out + end, data + at, plain - at)
        end += plain - at
        at = plain
        if at == stop:
            break
        byte = data[at + 1]  # behind a backslash, as quotes and control characters are not in valid strings
        if byte != 117:
            if byte == 98:
                byte = 8
            elif byte == 102:
                byte = 12
            elif byte == 110:
                byte = 10
            elif byte == 114:
                byte = 13
            elif byte == 116:
                byte = 9
            out[end] = byte
            end += 1
            at += 2
            continue
        code = hex_number(data, at + 2, stop)
        at += 6
        if 0xD800 <= code <= 0xDBFF:
            code = 0x10000 + ((code - 0xD800) << 10) + (hex_number(data, at + 2, stop) - 0xDC00)
            at += 6
        if code < 0x80:
            out[end] = <unsigned char> code
            end += 1
        elif code < 0x800:
            out[end] = <unsigned char> (0xC0 | (code >> 6))
            out[end + 1] = <unsigned char> (0x80 | (code & 0x3F))
            end += 2
        elif code < 0x10000:
            out[end] = <unsigned char> (0xE0 | (code >> 12))
            out[end + 1] = <unsigned char> (0x80 | ((code >> 6) & 0x3F))
            out[end + 2] = <unsigned char> (0x80 | (code & 0x3F))
            end += 3
        else:
            out[end] = <unsigned char> (0xF0 | (code >> 18))
            out[end + 1] = <unsigned char> (0x80 | ((code >> 12) & 0x3F))
            out[end + 2] = <unsigned char> (0x80 | ((code >> 6) & 0x3F))
            out[end + 3] = <unsigned char> (0x80 | (code & 0x3F))
            end += 4
    return end


# -- numbers and words

cdef inline void add_digit(Number *number, unsigned char byte, bint in_fraction) noexcept nogil:
    if number.used < MOST_DIGITS:
        number.digits = number.digits * 10 + (byte - 48)
        number.used += number.digits != 0
        number.power -= in_fraction
    else:
        number.power += not in_fraction
        number.is_exact = number.is_exact and byte == 48


cdef inline Py_ssize_t read_number(Parser *to, Py_ssize_t at, Number *number) noexcept nogil:
    """Read the number at ``at``, as the grammar of JSON has it. Return the index after it."""
    cdef const unsigned char *data = to.data
    cdef Py_ssize_t stop = to.stop, first = at
    cdef int64_t exponent = 0
    cdef bint is_small = False
    number.digits = number.power = number.used = 0
    number.is_exact = number.is_integer = True
    number.is_negative = at < stop and data[at] == 45
    at += number.is_negative
    if at < stop and data[at] == 48:
        at += 1
    elif at < stop and 49 <= data[at] <= 57:
        while at < stop and 48 <= data[at] <= 57:
            add_digit(number, data[at], False)
            at += 1
    else:
        return fail(to, MALFORMED, first, 0)
    if at < stop and data[at] == 46:
        number.is_integer = False
        at += 1
        if at == stop or not 48 <= data[at] <= 57:
            return fail(to, MALFORMED, first, 0)
        while at < stop and 48 <= data[at] <= 57:
            add_digit(number, data[at], True)
            at += 1
    if at < stop and (data[at] | 0x20) == 101:
        number.is_integer = False
        at += 1
        if at < stop and (data[at] == 43 or data[at] == 45):
            is_small = data[at] == 45
            at += 1
        if at == stop or not 48 <= data[at] <= 57:
            return fail(to, MALFORMED, first, 0)
        while at < stop and 48 <= data[at] <= 57:
            if exponent < MOST_EXPONENT:
                exponent = exponent * 10 + (data[at] - 48)
            at += 1
        number.power += -exponent if is_small else exponent
    return at


cdef inline double float_of(const unsigned char *first, const unsigned char *stop, Number *number) noexcept nogil:
    """Return the float64 nearest to the number that was read from ``first`` to ``stop``."""
    cdef double value = 0.0
    if not number.is_exact:
        read_float(first, stop, &value)
        return value
    if number.digits < (<uint64_t> 1 << 53) and -22 <= number.power <= 22:
        value = <double> number.digits
        value = value / ASD_TENS[-number.power] if number.power < 0 else value * ASD_TENS[number.power]
    else:
        value = nearest(number.digits, number.power)
    return -value if number.is_negative else value


cdef inline bint integer_of(
    const unsigned char *first, const unsigned char *stop, Number *number, uint64_t most, uint64_t least, uint64_t *bits
) noexcept nogil:
    """Store an integer between ``-least`` and ``most`` as the bits of an int64 or a uint64. Return False outside."""
    if number.power or not number.is_exact:  # more digits than fit
        return read_integer(first, stop, most, least, bits) == READ
    if number.digits > (least if number.is_negative else most):
        return False
    bits[0] = <uint64_t> 0 - number.digits if number.is_negative else number.digits
    return True


cdef inline bint is_word(Parser *to, Py_ssize_t at, const char *word, Py_ssize_t nbytes) noexcept nogil:
    return to.stop - at >= nbytes and memcmp(to.data + at, word, nbytes) == 0


cdef Py_ssize_t end_of_scalar(Parser *to, Py_ssize_t at) noexcept nogil:
    """Return the index after the string, number or word at ``at``."""
    cdef bint unused = False
    cdef Number number
    cdef Py_ssize_t end
    if at < to.stop and to.data[at] == 34:
        end = end_of_string(to, at + 1, &unused)
        return end if end < 0 else end + 1
    if is_word(to, at, "true", 4) or is_word(to, at, "null", 4):
        return at + 4
    if is_word(to, at, "false", 5):
        return at + 5
    return read_number(to, at, &number)


cdef Py_ssize_t behind_key(Parser *to, Py_ssize_t at) noexcept nogil:
    """Return the index of the value of the key at ``at``."""
    cdef bint unused = False
    if at == to.stop or to.data[at] != 34:
        return fail(to, MALFORMED, at, 0)
    at = end_of_string(to, at + 1, &unused)
    if at < 0:
        return at
    at = behind_space(to.data, at + 1, to.stop)
    if at == to.stop or to.data[at] != 58:
        return fail(to, MALFORMED, at, 0)
    return behind_space(to.data, at + 1, to.stop)


cdef Py_ssize_t behind_value(Parser *to, Py_ssize_t at, int depth) noexcept nogil:
    """Return the index after any value, which is inside ``depth`` containers."""
    cdef unsigned char[MOST_DEPTH] opened
    cdef int base = depth
    cdef unsigned char byte
    while True:
        byte = to.data[at] if at < to.stop else 0
        if byte == 123 or byte == 91:
            if depth >= MOST_DEPTH:
                return fail(to, TOO_DEEP, at, 0)
            opened[depth] = byte + 2
            depth += 1
            at = behind_space(to.data, at + 1, to.stop)
            if at < to.stop and to.data[at] == byte + 2:
                at += 1
                depth -= 1
            else:
                if byte == 123:
                    at = behind_key(to, at)
                    if at < 0:
                        return at
                continue
        else:
            at = end_of_scalar(to, at)
            if at < 0:
                return at
        while depth > base:
            at = behind_space(to.data, at, to.stop)
            if at == to.stop:
                return fail(to, MALFORMED, at, 0)
            if to.data[at] == opened[depth - 1]:
                at += 1
                depth -= 1
                continue
            if to.data[at] != 44:
                return fail(to, MALFORMED, at, 0)
            at = behind_space(to.data, at + 1, to.stop)
            if opened[depth - 1] == 125:
                at = behind_key(to, at)
                if at < 0:
                    return at
            break
        else:
            return at


# -- typed values

cdef inline bint grow(void **memory, Py_ssize_t itemsize, Py_ssize_t capacity) noexcept nogil:
    cdef void *grown = realloc(memory[0], itemsize * capacity)
    if grown == NULL:
        return False
    memory[0] = grown
    return True


cdef bint has_room(Node *node) noexcept nogil:
    """Make room for one more item of a list. Each item has at least two bytes of JSON."""
    cdef Py_ssize_t capacity = max(FIRST_ITEMS, 2 * node.capacity)
    if node.used < node.capacity:
        return True
    if node.kind == TEXT:
        if not grow(<void **> &node.text_starts, 8, capacity) or not grow(<void **> &node.text_lengths, 8, capacity):
            return False
    elif not grow(&node.values, node.itemsize, capacity):
        return False
    node.capacity = capacity
    return True


cdef Py_ssize_t read_scalar(Parser *to, Py_ssize_t number, Py_ssize_t at, Py_ssize_t item) noexcept nogil:
    """Store the value at ``at`` as an item of a node. Return the index after the value."""
    cdef Node *node = &to.nodes[number]
    cdef Py_ssize_t end
    cdef bint flag = False
    cdef uint64_t bits = 0
    cdef double value
    cdef Number found
    if node.kind == TEXT:
        if at == to.stop or to.data[at] != 34:
            return fail(to, WRONG_TYPE, at, number)
        end = end_of_string(to, at + 1, &flag)
        if end < 0:
            return end
        node.text_starts[item] = at + 1
        node.text_lengths[item] = end - at - 1
        node.escapes = node.escapes or flag
        return end + 1
    if node.kind == BOOL:
        flag = is_word(to, at, "true", 4)
        if not flag and not is_word(to, at, "false", 5):
            return fail(to, WRONG_TYPE, at, number)
        (<uint8_t *> node.values)[item] = flag
        return at + (4 if flag else 5)
    if at == to.stop or (to.data[at] != 45 and not 48 <= to.data[at] <= 57):
        return fail(to, WRONG_TYPE, at, number)
    end = read_number(to, at, &found)
    if end < 0:
        return end
    if node.kind == FLOAT64 or node.kind == FLOAT32:
        value = float_of(to.data + at, to.data + end, &found)
        if value - value != 0.0 or (node.kind == FLOAT32 and <float> value - <float> value != 0.0):
            return fail(to, OUT_OF_RANGE, at, number)
        if node.kind == FLOAT64:
            (<double *> node.values)[item] = value
        else:
            (<float *> node.values)[item] = <float> value
        return end
    if not found.is_integer:
        return fail(to, WRONG_TYPE, at, number)
    if not integer_of(to.data + at, to.data + end, &found, node.largest, node.least, &bits):
        return fail(to, OUT_OF_RANGE, at, number)
    if node.itemsize == 8:
        (<uint64_t *> node.values)[item] = bits
    elif node.itemsize == 4:
        (<uint32_t *> node.values)[item] = <uint32_t> bits
    elif node.itemsize == 2:
        (<uint16_t *> node.values)[item] = <uint16_t> bits
    else:
        (<uint8_t *> node.values)[item] = <uint8_t> bits
    return end


cdef Py_ssize_t read_list(Parser *to, Py_ssize_t number, Py_ssize_t at) noexcept nogil:
    cdef Node *node = &to.nodes[number]
    cdef Py_ssize_t first = node.used
    if at == to.stop or to.data[at] != 91:
        return fail(to, WRONG_TYPE, at, number)
    at = behind_space(to.data, at + 1, to.stop)
    if at < to.stop and to.data[at] == 93:
        at += 1
    else:
        while True:
            if not has_room(node):
                return fail(to, NO_MEMORY, at, number)
            at = read_scalar(to, number, at, node.used)
            if at < 0:
                return at
            node.used += 1
            at = behind_space(to.data, at, to.stop)
            if at == to.stop or (to.data[at] != 44 and to.data[at] != 93):
                return fail(to, MALFORMED, at, 0)
            at += 1
            if to.data[at - 1] == 93:
                break
            at = behind_space(to.data, at, to.stop)
    node.list_starts[to.row] = first
    node.list_lengths[to.row] = node.used - first
    node.valid[to.row] = 1
    return at


cdef void forget(Parser *to, Py_ssize_t number) noexcept nogil:
    """Let the current row have no value in a node and in the nodes inside it."""
    cdef Py_ssize_t inner
    if to.nodes[number].kind != OBJECT:
        to.nodes[number].valid[to.row] = 0
        return
    for inner in range(number + 1, to.nodes[number].behind):
        if to.nodes[inner].kind != OBJECT:
            to.nodes[inner].valid[to.row] = 0


cdef inline Py_ssize_t read_value(Parser *to, Py_ssize_t number, Py_ssize_t at, int depth) noexcept nogil:
    cdef Node *node = &to.nodes[number]
    if is_word(to, at, "null", 4):
        forget(to, number)
        return at + 4
    if node.kind == OBJECT:
        return read_object(to, number, at, depth)
    if node.is_list:
        return read_list(to, number, at)
    at = read_scalar(to, number, at, to.row)
    node.valid[to.row] = 1
    return at


cdef inline Py_ssize_t field_of(
    Parser *to, Node *node, Py_ssize_t at, Py_ssize_t end, bint escaped, Py_ssize_t guess
) noexcept nogil:
    """Return the number of the field whose key is ``data[at:end]``, or -1."""
    cdef const unsigned char *key = to.data + at
    cdef Py_ssize_t nbytes = end - at, i
    if escaped:
        if nbytes > 6 * node.longest:  # an escape has at most six bytes for each byte of text
            return -1
        nbytes = unescaped(to.data, at, end, to.scratch)
        key = to.scratch
    if nbytes > node.longest:
        return -1
    for i in range(guess, node.count):
        if node.fields[i].nbytes == nbytes and memcmp(node.fields[i].key, key, nbytes) == 0:
            return i
    for i in range(guess):
        if node.fields[i].nbytes == nbytes and memcmp(node.fields[i].key, key, nbytes) == 0:
            return i
    return -1


cdef Py_ssize_t read_object(Parser *to, Py_ssize_t number, Py_ssize_t at, int depth) noexcept nogil:
    cdef Node *node = &to.nodes[number]
    cdef Py_ssize_t end, found, guess = 0
    cdef bint escaped = False
    if at == to.stop or to.data[at] != 123:
        return fail(to, WRONG_TYPE, at, number)
    if number:
        forget(to, number)  # what an earlier value of the same key held
    at = behind_space(to.data, at + 1, to.stop)
    if at < to.stop and to.data[at] == 125:
        return at + 1
    while True:
        if at == to.stop or to.data[at] != 34:
            return fail(to, MALFORMED, at, 0)
        end = end_of_string(to, at + 1, &escaped)
        if end < 0:
            return end
        found = field_of(to, node, at + 1, end, escaped, guess)
        at = behind_space(to.data, end + 1, to.stop)
        if at == to.stop or to.data[at] != 58:
            return fail(to, MALFORMED, at, 0)
        at = behind_space(to.data, at + 1, to.stop)
        if found < 0:
            at = behind_value(to, at, depth + 1)
        else:
            guess = found + 1 if found + 1 < node.count else 0
            at = read_value(to, node.fields[found].node, at, depth + 1)
        if at < 0:
            return at
        at = behind_space(to.data, at, to.stop)
        if at == to.stop or (to.data[at] != 44 and to.data[at] != 125):
            return fail(to, MALFORMED, at, 0)
        at += 1
        if to.data[at - 1] == 125:
            return at
        at = behind_space(to.data, at, to.stop)


cdef Fault parse_rows(Parser *to, const int64_t *starts, const int64_t *lengths, Py_ssize_t rows) noexcept nogil:
    cdef Py_ssize_t row, at
    for row in range(rows):
        to.row = row
        to.stop = starts[row] + lengths[row]
        at = behind_space(to.data, starts[row], to.stop)
        at = read_object(to, 0, at, 0)
        if at >= 0:
            at = behind_space(to.data, at, to.stop)
            if at == to.stop:
                continue
            fail(to, MALFORMED, at, 0)
        return to.code
    return NO_FAULT


cdef class _Columns:
    """Memory of all nodes, and the arrays that are NumPy's."""

    cdef Node *nodes
    cdef Py_ssize_t count
    cdef unsigned char *scratch
    cdef list arrays

    def __cinit__(self, nodes, Py_ssize_t rows):
        cdef Py_ssize_t number, i, longest = 0
        self.count = len(nodes)
        self.nodes = <Node *> calloc(max(1, self.count), sizeof(Node))
        if self.nodes == NULL:
            raise MemoryError
        self.arrays = []
        for number, (kind, is_list, fields, behind) in enumerate(nodes):
            self.nodes[number].kind = <Kind> <int> kind
            self.nodes[number].is_list = is_list
            if not number < behind <= self.count:
                raise IndexError("an object is outside the schema")
            self.nodes[number].behind = behind
            if kind != OBJECT:
                self._allocate(&self.nodes[number], rows)
                continue
            self.arrays.append(None)
            self.nodes[number].fields = <Field *> calloc(max(1, len(fields)), sizeof(Field))
            if self.nodes[number].fields == NULL:
                raise MemoryError
            self.nodes[number].count = len(fields)
            for i, (key, inner) in enumerate(fields):
                if not number < inner < self.count:
                    raise IndexError("a field is outside the schema")
                self.nodes[number].fields[i].key = <bytes> key
                self.nodes[number].fields[i].nbytes = len(key)
                self.nodes[number].fields[i].node = inner
                self.nodes[number].longest = max(self.nodes[number].longest, <Py_ssize_t> len(key))
            longest = max(longest, self.nodes[number].longest)
        self.scratch = <unsigned char *> calloc(6 * longest + 1, 1)
        if self.scratch == NULL:
            raise MemoryError

    cdef _allocate(self, Node *node, Py_ssize_t rows):
        cdef int64_t[::1] starts_view, lengths_view
        cdef uint8_t[::1] bytes_view
        valid = np.zeros(rows, np.bool_)
        bytes_view = valid.view(np.uint8)
        node.valid = &bytes_view[0] if rows else NULL
        dtype = np.dtype(np.int64) if node.kind == TEXT else _DTYPES[node.kind]
        node.itemsize = dtype.itemsize
        if dtype.kind in "iu":
            node.largest = np.iinfo(dtype).max
            node.least = -int(np.iinfo(dtype).min)
        if node.kind != TEXT and not node.is_list:
            values = np.zeros(rows, dtype)
            bytes_view = values.view(np.uint8)
            node.values = &bytes_view[0] if rows else NULL
            self.arrays.append((values, valid))
            return
        starts, lengths = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        starts_view, lengths_view = starts, lengths
        if node.is_list:
            node.list_starts = &starts_view[0] if rows else NULL
            node.list_lengths = &lengths_view[0] if rows else NULL
        else:
            node.text_starts = &starts_view[0] if rows else NULL
            node.text_lengths = &lengths_view[0] if rows else NULL
        self.arrays.append((starts, lengths, valid))

    def __dealloc__(self):
        cdef Py_ssize_t number
        if self.nodes == NULL:
            return
        for number in range(self.count):
            free(self.nodes[number].fields)
            if self.nodes[number].is_list:
                free(self.nodes[number].values)
                free(self.nodes[number].text_starts)
                free(self.nodes[number].text_lengths)
        free(self.nodes)
        free(self.scratch)

    cdef results(self, buffer):
        """Return ``(values, starts, lengths, valid)`` of each node that is no object."""
        found = []
        cdef Py_ssize_t number
        cdef Node *node
        for number in range(self.count):
            node = &self.nodes[number]
            if node.kind == OBJECT:
                continue
            if node.kind != TEXT and not node.is_list:
                values, valid = self.arrays[number]
                found.append((values, None, None, valid))
                continue
            starts, lengths, valid = self.arrays[number]
            if not node.is_list:
                # a row can have had a text before a null of the same key
                lengths[~valid] = 0
                found.append(_plain(buffer, starts, lengths, node.escapes) + (valid,))
            elif node.kind == TEXT:
                texts = _copied(node.text_starts, 8 * node.used, np.int64)
                text_lengths = _copied(node.text_lengths, 8 * node.used, np.int64)
                lengths[~valid] = 0
                found.append((_plain(buffer, texts, text_lengths, node.escapes), starts, lengths, valid))
            else:
                lengths[~valid] = 0
                items = _copied(node.values, node.itemsize * node.used, _DTYPES[node.kind])
                found.append((items, starts, lengths, valid))
        return found


cdef _copied(void *memory, Py_ssize_t nbytes, dtype):
    copy = np.empty(nbytes, np.uint8)
    cdef uint8_t[::1] view = copy
    if nbytes:
        memcpy(&view[0], memory, nbytes)
    return copy.view(dtype)


cdef _plain(buffer, starts, lengths, bint escapes):
    return _unescaped_texts(buffer, starts, lengths) if escapes else (buffer, starts, lengths)


_DTYPES = {
    BOOL: np.dtype(np.bool_), FLOAT32: np.dtype(np.float32), FLOAT64: np.dtype(np.float64),
    INT8: np.dtype(np.int8), INT16: np.dtype(np.int16), INT32: np.dtype(np.int32), INT64: np.dtype(np.int64),
    UINT8: np.dtype(np.uint8), UINT16: np.dtype(np.uint16), UINT32: np.dtype(np.uint32), UINT64: np.dtype(np.uint64),
}


cdef bint _are_inside(const int64_t[::1] starts, const int64_t[::1] lengths, Py_ssize_t nbytes):
    cdef Py_ssize_t row
    if starts.shape[0] != lengths.shape[0]:
        return False
    for row in range(starts.shape[0]):
        if starts[row] < 0 or lengths[row] < 0 or starts[row] > nbytes - lengths[row]:
            return False
    return True


def parse_json(buffer, const int64_t[::1] starts, const int64_t[::1] lengths, nodes):
    """Parse records to columns. See ``json_rows_py.parse_json``."""
    cdef const unsigned char[::1] view = buffer
    cdef Py_ssize_t rows = starts.shape[0], place
    cdef Parser parser
    cdef Fault code
    if not _are_inside(starts, lengths, view.shape[0]):
        raise IndexError("a record is outside the buffer")
    cdef _Columns columns = _Columns(nodes, rows)
    parser.data = &view[0] if view.shape[0] else NULL
    parser.nodes = columns.nodes
    parser.scratch = columns.scratch
    parser.code = NO_FAULT
    parser.row = parser.place = parser.node = 0
    if rows:
        with nogil:
            code = parse_rows(&parser, &starts[0], &lengths[0], rows)
        if code == NO_MEMORY:
            raise MemoryError
        if code != NO_FAULT:
            place = parser.place - starts[parser.row]
            return JsonFault(<int> code, parser.row, parser.node, place)
    return columns.results(buffer)


cdef _unescaped_texts(const unsigned char[::1] buffer, const int64_t[::1] starts, const int64_t[::1] lengths):
    """Copy the texts of valid strings without their escapes. Return them as (values, starts, lengths)."""
    cdef Py_ssize_t rows = starts.shape[0], row, end = 0, total = 0
    for row in range(rows):
        total += lengths[row]
    values, new_starts, new_lengths = np.empty(total, np.uint8), np.empty(rows, np.int64), np.empty(rows, np.int64)
    cdef uint8_t[::1] out = values
    cdef int64_t[::1] starts_view = new_starts, lengths_view = new_lengths
    with nogil:
        for row in range(rows):
            starts_view[row] = end
            if lengths[row]:
                end += unescaped(&buffer[0], starts[row], starts[row] + lengths[row], &out[end])
            lengths_view[row] = end - starts_view[row]
    return values[:end], new_starts, new_lengths
