# cython: boundscheck=False, wraparound=False, cdivision=True
"""Split CSV text into records and parse fields without the GIL; ``csv_rows_py`` is the pure-Python twin.

Each position is checked against the end of its record before it is read. Output arrays grow with the number of records.
"""

from libc.math cimport HUGE_VAL, NAN
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

import numpy as np

from aiostream_data._native.csv_rows_py import CsvFault, five_powers

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(_MSC_VER)
    #include <intrin.h>
    static uint64_t asd_high(uint64_t a, uint64_t b, uint64_t *low) {
        uint64_t high; *low = _umul128(a, b, &high); return high;
    }
    static int asd_leading_zeros(uint64_t value) {
        unsigned long at; _BitScanReverse64(&at, value); return 63 - (int) at;
    }
    #else
    static inline uint64_t asd_high(uint64_t a, uint64_t b, uint64_t *low) {
        unsigned __int128 product = (unsigned __int128) a * b;
        *low = (uint64_t) product;
        return (uint64_t) (product >> 64);
    }
    static inline int asd_leading_zeros(uint64_t value) { return __builtin_clzll(value); }
    #endif
    #include <string.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* Index of the first ``byte`` in data[at:stop], or stop. */
    static inline Py_ssize_t asd_find_near(const unsigned char *data, Py_ssize_t at, Py_ssize_t stop, int byte) {
        const uint64_t ones = 0x0101010101010101ULL, pattern = ones * (unsigned char) byte;
        while (stop - at >= 8) {
            uint64_t word;
            memcpy(&word, data + at, 8);
            word ^= pattern;
            word = (word - ones) & ~word & (ones << 7);
            if (word) return at + (__builtin_ctzll(word) >> 3);
            at += 8;
        }
        while (at < stop && data[at] != byte) at++;
        return at;
    }
    /* Read eight digits; 0 if one of the bytes is not a digit. */
    static inline int asd_eight_digits(const unsigned char *text, uint64_t *found) {
        uint64_t word;
        memcpy(&word, text, 8);
        if (((word & 0xF0F0F0F0F0F0F0F0ULL) | (((word + 0x0606060606060606ULL) & 0xF0F0F0F0F0F0F0F0ULL) >> 4))
                != 0x3333333333333333ULL) return 0;
        word -= 0x3030303030303030ULL;
        word = word * 10 + (word >> 8);
        *found = (((word & 0x000000FF000000FFULL) * 0x000F424000000064ULL)
                  + (((word >> 16) & 0x000000FF000000FFULL) * 0x0000271000000001ULL)) >> 32;
        return 1;
    }
    #else
    static inline Py_ssize_t asd_find_near(const unsigned char *data, Py_ssize_t at, Py_ssize_t stop, int byte) {
        while (at < stop && data[at] != byte) at++;
        return at;
    }
    static inline int asd_eight_digits(const unsigned char *text, uint64_t *found) { return 0; }
    #endif
    """
    uint64_t asd_high(uint64_t a, uint64_t b, uint64_t *low) nogil
    int asd_leading_zeros(uint64_t value) nogil
    Py_ssize_t asd_find_near(const unsigned char *data, Py_ssize_t at, Py_ssize_t stop, int byte) nogil
    bint asd_eight_digits(const unsigned char *text, uint64_t *found) nogil

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *text, char **end, void *overflow) except? -1.0

cdef enum State:
    FIELD_START, FIELD, QUOTED, CLOSING

cdef enum Kind:
    SKIPPED, TEXT, BOOL, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64

cdef Py_ssize_t FIRST_CAPACITY = 512
cdef Py_ssize_t SEARCHED_NBYTES = 64 << 10
cdef uint64_t TENTH = ~(<uint64_t> 0) / 10

FIVES = five_powers()
cdef const uint64_t[::1] FIVES_VIEW = FIVES
cdef const uint64_t *POWERS = &FIVES_VIEW[0]
cdef double[23] TENS
cdef int _power
for _power in range(23):
    TENS[_power] = float(10**_power)


# -- splitting

cdef inline Py_ssize_t find_byte(const unsigned char *data, Py_ssize_t start, Py_ssize_t stop, int byte) noexcept nogil:
    """Return the index of the first ``byte`` in ``data[start:stop]``, or ``stop``."""
    cdef const void *found = memchr(data + start, byte, stop - start) if start < stop else NULL
    return stop if found == NULL else <const unsigned char *> found - data


cdef bint cut_records(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, int delimiter, int quote,
    int64_t[::1] starts, int64_t[::1] lengths, Py_ssize_t *count, Py_ssize_t *lines,
) noexcept nogil:
    """Split records, starting at ``at[0]``. Return False if the arrays are full."""
    cdef Py_ssize_t start, newline, length, opened, newlines
    cdef Py_ssize_t clear = at[0]  # data[at:clear] has no quote that was not processed
    cdef Py_ssize_t searched
    while at[0] < stop:
        if count[0] == starts.shape[0]:
            return False
        start = at[0]
        newline = find_byte(data, start, stop, 10)
        if newline == stop:
            return True
        newlines = 1
        clear = max(clear, start)
        while quote >= 0 and clear < newline:
            searched = max(newline, min(stop, clear + SEARCHED_NBYTES))
            opened = find_byte(data, clear, searched, quote)
            if opened >= newline:
                clear = opened
                break
            clear = opened + 1
            if opened > start and data[opened - 1] != delimiter:
                continue
            while True:
                clear = find_byte(data, clear, stop, quote)
                if clear == stop:
                    return True
                if clear + 1 == stop or data[clear + 1] != quote:
                    break
                clear += 2
            clear += 1
            while newline < clear:
                newline = find_byte(data, newline + 1, stop, 10)
                newlines += 1
            if newline == stop:
                return True
        length = newline - start
        if length and data[newline - 1] == 13:
            length -= 1
        if length:
            starts[count[0]] = start
            lengths[count[0]] = length
            count[0] += 1
        lines[0] += newlines
        at[0] = newline + 1
    return True


def find_csv_records(
    const unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t stop, int delimiter, int quote, Py_ssize_t most_rows
):
    """Find the complete records in ``buffer[start:stop]``. See ``csv_rows_py.find_csv_records``."""
    if not 0 <= start <= stop <= buffer.shape[0]:
        raise IndexError(f"bytes {start} to {stop} are outside a buffer of {buffer.shape[0]}")
    cdef Py_ssize_t at = start, count = 0, lines = 0
    cdef const unsigned char *data = &buffer[0] if buffer.shape[0] else NULL
    cdef bint done = False
    starts = np.empty(min(FIRST_CAPACITY, most_rows), np.int64)
    lengths = np.empty(min(FIRST_CAPACITY, most_rows), np.int64)
    cdef int64_t[::1] starts_view = starts, lengths_view = lengths
    while True:
        with nogil:
            done = cut_records(data, &at, stop, delimiter, quote, starts_view, lengths_view, &count, &lines)
        if done or count >= most_rows:
            break
        starts = starts_view = _resized(starts, min(2 * count, most_rows))
        lengths = lengths_view = _resized(lengths, min(2 * count, most_rows))
    return starts[:count].copy(), lengths[:count].copy(), at, lines


cdef _resized(array, Py_ssize_t size):
    larger = np.empty(size, array.dtype)
    larger[: len(array)] = array
    return larger


def scan_csv(
    const unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t stop, int delimiter, int quote, int state
):
    """Find the end of the record at ``start``. See ``csv_rows_py.scan_csv``."""
    if not 0 <= start <= stop <= buffer.shape[0]:
        raise IndexError(f"bytes {start} to {stop} are outside a buffer of {buffer.shape[0]}")
    cdef Py_ssize_t at = start, end = -1
    cdef unsigned char byte
    with nogil:
        while at < stop:
            if state == QUOTED:
                at = find_byte(&buffer[0], at, stop, quote)
                if at == stop:
                    break
                state = CLOSING
                at += 1
                continue
            byte = buffer[at]
            at += 1
            if byte == quote and (state == FIELD_START or state == CLOSING):
                state = QUOTED
            elif byte == delimiter:
                state = FIELD_START
            elif byte == 10:
                end = at
                state = FIELD_START
                break
            else:
                state = FIELD
    return end, state


# -- fields

cdef inline Code next_field(
    const unsigned char *data, Py_ssize_t *at, Py_ssize_t stop, int delimiter, int quote,
    Py_ssize_t *first, Py_ssize_t *last, bint *quoted, bint *escaped,
) noexcept nogil:
    """Find the field at ``at[0]``: its text is ``data[first:last]``. Set ``at[0]`` to its delimiter or to ``stop``."""
    cdef Py_ssize_t p = at[0]
    escaped[0] = False
    if p == stop or data[p] != quote or quote < 0:
        quoted[0] = False
        first[0] = p
        p = asd_find_near(data, p, stop, delimiter)
        last[0] = at[0] = p
        return FINE
    quoted[0] = True
    p += 1
    first[0] = p
    while True:
        p = find_byte(data, p, stop, quote)
        if p == stop:
            return OPEN_QUOTE
        if p + 1 == stop or data[p + 1] != quote:
            break
        escaped[0] = True
        p += 2
    last[0] = p
    at[0] = p + 1
    return FINE if p + 1 == stop or data[p + 1] == delimiter else TEXT_AFTER_QUOTE


cdef inline bint is_digit(unsigned char byte) noexcept nogil:
    return 48 <= byte <= 57


cdef Code read_integer(
    const unsigned char *p, const unsigned char *stop, uint64_t most, uint64_t least, uint64_t *found
) noexcept nogil:
    """Read an integer between ``-least`` and ``most``, as the bits of an int64 or a uint64."""
    cdef bint negative = False
    cdef uint64_t value = 0, digit
    cdef const unsigned char *first
    if p < stop and (p[0] == 45 or p[0] == 43):
        negative = p[0] == 45
        p += 1
    if p == stop:
        return BAD_VALUE
    while p + 1 < stop and p[0] == 48:
        p += 1
    first = p
    while p < stop:
        digit = <uint64_t> p[0] - 48
        if digit > 9:
            return BAD_VALUE
        if p - first >= 19 and (p - first > 19 or value > TENTH or (value == TENTH and digit > 5)):
            return digits_only(p, stop)
        value = value * 10 + digit
        p += 1
    if value > (least if negative else most):
        return OUT_OF_RANGE
    found[0] = <uint64_t> 0 - value if negative else value
    return FINE


cdef Code digits_only(const unsigned char *p, const unsigned char *stop) noexcept nogil:
    while p < stop:
        if not is_digit(p[0]):
            return BAD_VALUE
        p += 1
    return OUT_OF_RANGE


cdef inline double from_bits(uint64_t bits) noexcept nogil:
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef double nearest(uint64_t digits, int64_t power) noexcept nogil:
    """Return the float64 nearest to ``digits * 10**power``, by the algorithm of Eisel and Lemire."""
    cdef uint64_t low, high, other_low, other_high, mantissa
    cdef int zeros, upper, shift
    cdef int64_t exponent
    if digits == 0 or power < -342:
        return 0.0
    if power > 308:
        return HUGE_VAL
    zeros = asd_leading_zeros(digits)
    digits <<= zeros
    high = asd_high(digits, POWERS[2 * (power + 342)], &low)
    if (high & 0x1FF) == 0x1FF:
        other_high = asd_high(digits, POWERS[2 * (power + 342) + 1], &other_low)
        low += other_high
        if other_high > low:
            high += 1
    upper = <int> (high >> 63)
    shift = upper + 64 - 52 - 3
    mantissa = high >> shift
    exponent = ((217706 * power) >> 16) + 63 + upper - zeros + 1023
    if exponent <= 0:
        if -exponent + 1 >= 64:
            return 0.0
        mantissa >>= -exponent + 1
        mantissa += mantissa & 1
        mantissa >>= 1
        exponent = 0 if mantissa < (<uint64_t> 1 << 52) else 1
        return from_bits((mantissa & ((<uint64_t> 1 << 52) - 1)) | (<uint64_t> exponent << 52))
    if low <= 1 and -4 <= power <= 23 and (mantissa & 3) == 1 and (mantissa << shift) == high:
        mantissa &= ~(<uint64_t> 1)
    mantissa += mantissa & 1
    mantissa >>= 1
    if mantissa >= (<uint64_t> 2 << 52):
        mantissa = <uint64_t> 1 << 52
        exponent += 1
    if exponent >= 0x7FF:
        return HUGE_VAL
    return from_bits((mantissa & ~(<uint64_t> 1 << 52)) | (<uint64_t> exponent << 52))


cdef bint is_word(const unsigned char *p, const unsigned char *stop, const char *word, Py_ssize_t nbytes) noexcept nogil:
    """Return True if the text is ``word`` in any case."""
    cdef Py_ssize_t i
    if stop - p != nbytes:
        return False
    for i in range(nbytes):
        if (p[i] | 0x20) != <unsigned char> word[i]:
            return False
    return True


cdef Code special_float(const unsigned char *p, const unsigned char *stop, bint negative, double *found) noexcept nogil:
    if is_word(p, stop, "nan", 3):
        found[0] = NAN
    elif is_word(p, stop, "inf", 3) or is_word(p, stop, "infinity", 8):
        found[0] = -HUGE_VAL if negative else HUGE_VAL
    else:
        return BAD_VALUE
    return FINE


cdef Code by_python(const unsigned char *p, const unsigned char *stop, double *found) noexcept nogil:
    """Convert a valid number with more than 19 digits exactly."""
    with gil:
        text = p[: stop - p]
        found[0] = PyOS_string_to_double(text, NULL, NULL)
    return FINE


cdef Code read_float(const unsigned char *p, const unsigned char *stop, double *found) noexcept nogil:
    cdef const unsigned char *begin = p
    cdef bint negative = False, any_digit = False, exponent_negative = False
    cdef uint64_t digits = 0
    cdef int64_t power = 0, exponent = 0
    cdef int used = 0
    cdef bint dropped = False
    cdef double value
    cdef uint64_t eight = 0
    if p < stop and (p[0] == 45 or p[0] == 43):
        negative = p[0] == 45
        p += 1
    if p < stop and not is_digit(p[0]) and p[0] != 46:
        return special_float(p, stop, negative, found)
    while p < stop and is_digit(p[0]):
        any_digit = True
        if used < 19:
            digits = digits * 10 + (p[0] - 48)
            used += digits != 0
        else:
            power += 1
            dropped = dropped or p[0] != 48
        p += 1
    if p < stop and p[0] == 46:
        p += 1
        while p < stop and is_digit(p[0]):
            any_digit = True
            if digits and used <= 11 and stop - p >= 8 and asd_eight_digits(p, &eight):
                digits = digits * 100000000 + eight
                used += 8
                power -= 8
                p += 8
                continue
            if used < 19:
                digits = digits * 10 + (p[0] - 48)
                used += digits != 0
                power -= 1
            else:
                dropped = dropped or p[0] != 48
            p += 1
    if not any_digit:
        return BAD_VALUE
    if p < stop and (p[0] | 0x20) == 101:
        p += 1
        if p < stop and (p[0] == 45 or p[0] == 43):
            exponent_negative = p[0] == 45
            p += 1
        if p == stop:
            return BAD_VALUE
        while p < stop and is_digit(p[0]):
            if exponent < (<int64_t> 1 << 40):
                exponent = exponent * 10 + (p[0] - 48)
            p += 1
        power += -exponent if exponent_negative else exponent
    if p != stop:
        return BAD_VALUE
    if dropped:
        return by_python(begin, stop, found)
    if digits < (<uint64_t> 1 << 53) and -22 <= power <= 22:
        value = <double> digits
        value = value / TENS[<int> -power] if power < 0 else value * TENS[<int> power]
    else:
        value = nearest(digits, power)
    found[0] = -value if negative else value
    return FINE


cdef Code read_bool(const unsigned char *p, const unsigned char *stop, uint8_t *found) noexcept nogil:
    if stop - p == 1 and (p[0] == 48 or p[0] == 49):
        found[0] = p[0] == 49
    elif is_word(p, stop, "true", 4):
        found[0] = 1
    elif is_word(p, stop, "false", 5):
        found[0] = 0
    else:
        return BAD_VALUE
    return FINE


cdef struct Wanted:
    Kind kind
    int64_t most
    void *values
    int64_t *starts
    int64_t *lengths
    uint8_t *valid
    uint64_t largest
    uint64_t least
    bint escapes
    bint missing


cdef struct Words:
    const unsigned char *text
    const int64_t *bounds
    Py_ssize_t count
    Py_ssize_t longest
    bint has_empty


cdef inline bint is_missing(const unsigned char *p, Py_ssize_t nbytes, Words *words) noexcept nogil:
    cdef Py_ssize_t i
    if nbytes == 0:
        return words.has_empty
    if nbytes > words.longest:
        return False
    for i in range(words.count):
        if words.bounds[i + 1] - words.bounds[i] == nbytes and memcmp(words.text + words.bounds[i], p, nbytes) == 0:
            return True
    return False


cdef inline Code store_number(Wanted *want, Py_ssize_t row, const unsigned char *p, const unsigned char *stop) noexcept nogil:
    cdef uint64_t bits = 0
    cdef double number = 0.0
    cdef uint8_t flag = 0
    cdef Code code
    while p < stop and (p[0] == 32 or p[0] == 9):
        p += 1
    while p < stop and ((stop - 1)[0] == 32 or (stop - 1)[0] == 9):
        stop -= 1
    if want.kind == FLOAT64 or want.kind == FLOAT32:
        code = read_float(p, stop, &number)
        if want.kind == FLOAT64:
            (<double *> want.values)[row] = number
        else:
            (<float *> want.values)[row] = <float> number
        return code
    if want.kind == BOOL:
        code = read_bool(p, stop, &flag)
        (<uint8_t *> want.values)[row] = flag
        return code
    code = read_integer(p, stop, want.largest, want.least, &bits)
    if want.kind == INT64 or want.kind == UINT64:
        (<uint64_t *> want.values)[row] = bits
    elif want.kind == INT32 or want.kind == UINT32:
        (<uint32_t *> want.values)[row] = <uint32_t> bits
    elif want.kind == INT16 or want.kind == UINT16:
        (<uint16_t *> want.values)[row] = <uint16_t> bits
    else:
        (<uint8_t *> want.values)[row] = <uint8_t> bits
    return code


cdef inline void store_zero(Wanted *want, Py_ssize_t row) noexcept nogil:
    if want.kind == FLOAT64 or want.kind == INT64 or want.kind == UINT64:
        (<uint64_t *> want.values)[row] = 0
    elif want.kind == FLOAT32 or want.kind == INT32 or want.kind == UINT32:
        (<uint32_t *> want.values)[row] = 0
    elif want.kind == INT16 or want.kind == UINT16:
        (<uint16_t *> want.values)[row] = 0
    else:
        (<uint8_t *> want.values)[row] = 0


cdef Code parse_rows(
    const unsigned char *data, const int64_t *starts, const int64_t *lengths, Py_ssize_t rows,
    Wanted *wanted, Py_ssize_t columns, int delimiter, int quote, Words *words, Py_ssize_t *bad_row, Py_ssize_t *bad_column,
) noexcept nogil:
    cdef Py_ssize_t row, column, at, stop, first, last
    cdef bint quoted, escaped
    cdef Code code
    cdef Wanted *want
    for row in range(rows):
        bad_row[0] = row
        at = starts[row]
        stop = at + lengths[row]
        column = 0
        while True:
            bad_column[0] = column
            code = next_field(data, &at, stop, delimiter, quote, &first, &last, &quoted, &escaped)
            if code != FINE:
                return code
            if column == columns:
                return FIELD_COUNT
            want = &wanted[column]
            if want.kind == TEXT:
                if not quoted and is_missing(data + first, last - first, words):
                    want.valid[row] = 0
                    want.missing = True
                    last = first
                want.starts[row] = first
                want.lengths[row] = last - first
                want.escapes = want.escapes or escaped
            elif want.kind != SKIPPED:
                if is_missing(data + first, last - first, words):
                    want.valid[row] = 0
                    want.missing = True
                    store_zero(want, row)
                else:
                    code = store_number(want, row, data + first, data + last)
                    if code != FINE:
                        return code
            column += 1
            if at == stop:
                break
            at += 1
        if column != columns:
            return FIELD_COUNT
    return FINE


_DTYPES = {
    BOOL: np.dtype(np.bool_), FLOAT32: np.dtype(np.float32), FLOAT64: np.dtype(np.float64),
    INT8: np.dtype(np.int8), INT16: np.dtype(np.int16), INT32: np.dtype(np.int32), INT64: np.dtype(np.int64),
    UINT8: np.dtype(np.uint8), UINT16: np.dtype(np.uint16), UINT32: np.dtype(np.uint32), UINT64: np.dtype(np.uint64),
}


def parse_csv(
    const unsigned char[::1] buffer, const int64_t[::1] starts, const int64_t[::1] lengths,
    kinds, int delimiter, int quote, na_values,
):
    """Parse records to columns. See ``csv_rows_py.parse_csv``."""
    cdef Py_ssize_t rows = starts.shape[0], columns = len(kinds), column, bad_row = 0, bad_column = 0
    cdef const unsigned char *data = &buffer[0] if buffer.shape[0] else NULL
    cdef Code code
    cdef Words words
    cdef Wanted *wanted
    if lengths.shape[0] != rows:
        raise ValueError("starts and lengths differ in length")
    if rows and not _are_inside(starts, lengths, buffer.shape[0]):
        raise IndexError("a record is outside the buffer")
    text = b"".join(na_values)
    bounds = np.cumsum([0, *map(len, na_values)]).astype(np.int64)
    cdef const int64_t[::1] bounds_view = bounds
    words.text = text
    words.bounds = &bounds_view[0]
    words.count = len(na_values)
    words.longest = max(map(len, na_values), default=-1)
    words.has_empty = b"" in na_values
    wanted = <Wanted *> malloc(max(1, columns) * sizeof(Wanted))
    if wanted == NULL:
        raise MemoryError
    try:
        arrays = [_allocate(&wanted[column], kinds[column], rows) for column in range(columns)]
        with nogil:
            code = parse_rows(
                data, &starts[0] if rows else NULL, &lengths[0] if rows else NULL, rows,
                wanted, columns, delimiter, quote, &words, &bad_row, &bad_column,
            )
        if code != FINE:
            return CsvFault(<int> code, bad_row, bad_column)
        return [
            (*found, bool(wanted[column].missing), bool(wanted[column].escapes))
            for column, found in enumerate(arrays) if found is not None
        ]
    finally:
        free(wanted)


cdef bint _are_inside(const int64_t[::1] starts, const int64_t[::1] lengths, Py_ssize_t nbytes):
    cdef Py_ssize_t row
    for row in range(starts.shape[0]):
        if starts[row] < 0 or lengths[row] < 0 or starts[row] > nbytes - lengths[row]:
            return False
    return True


cdef _allocate(Wanted *want, int kind, Py_ssize_t rows):
    cdef int64_t[::1] starts_view, lengths_view
    cdef uint8_t[::1] bytes_view
    want.kind = <Kind> kind
    want.escapes = want.missing = False
    if kind == SKIPPED:
        return None
    valid = np.ones(rows, np.bool_)
    bytes_view = valid.view(np.uint8)
    want.valid = &bytes_view[0] if rows else NULL
    if kind == TEXT:
        starts, lengths = np.empty(rows, np.int64), np.empty(rows, np.int64)
        starts_view, lengths_view = starts, lengths
        want.starts = &starts_view[0] if rows else NULL
        want.lengths = &lengths_view[0] if rows else NULL
        return starts, lengths, valid
    dtype = _DTYPES[kind]
    values = np.empty(rows, dtype)
    bytes_view = values.view(np.uint8)
    want.values = &bytes_view[0] if rows else NULL
    if dtype.kind in "iu":
        want.largest = np.iinfo(dtype).max
        want.least = -int(np.iinfo(dtype).min)
    return values, None, valid


def unescape_csv(const unsigned char[::1] buffer, const int64_t[::1] starts, const int64_t[::1] lengths, int quote):
    """Copy rows, with one quote in place of two. See ``csv_rows_py.unescape_csv``."""
    cdef Py_ssize_t rows = starts.shape[0], row, at, stop, end = 0, total = 0
    if not _are_inside(starts, lengths, buffer.shape[0]):
        raise IndexError("a row is outside the buffer")
    for row in range(rows):
        total += lengths[row]
    values, new_starts, new_lengths = np.empty(total, np.uint8), np.empty(rows, np.int64), np.empty(rows, np.int64)
    cdef uint8_t[::1] out = values
    cdef int64_t[::1] starts_view = new_starts, lengths_view = new_lengths
    with nogil:
        for row in range(rows):
            starts_view[row] = end
            at = starts[row]
            stop = at + lengths[row]
            while at < stop:
                out[end] = buffer[at]
                end += 1
                if buffer[at] == quote and at + 1 < stop and buffer[at + 1] == quote:
                    at += 1
                at += 1
            lengths_view[row] = end - starts_view[row]
    return values[:end], new_starts, new_lengths


def reorder_csv(
    const unsigned char[::1] buffer, const int64_t[::1] starts, const int64_t[::1] lengths,
    const int64_t[::1] order, int delimiter, int quote,
):
    """Copy records with their fields in another order. See ``csv_rows_py.reorder_csv``."""
    cdef Py_ssize_t rows = starts.shape[0], columns = order.shape[0], row, end = 0, total = 0, column, at, stop, first, last
    cdef const unsigned char *data = &buffer[0] if buffer.shape[0] else NULL
    cdef bint quoted = False, escaped = False
    cdef Code code = FINE
    cdef Py_ssize_t *spans
    if not _are_inside(starts, lengths, buffer.shape[0]):
        raise IndexError("a record is outside the buffer")
    for column in range(columns):
        if not 0 <= order[column] < columns:
            raise IndexError("a field number is too large")
    for row in range(rows):
        total += lengths[row]
    values, new_starts = np.empty(total, np.uint8), np.empty(rows, np.int64)
    new_lengths = np.array(lengths)
    if not total:
        return values, np.zeros(rows, np.int64), new_lengths
    cdef uint8_t[::1] out_view = values
    cdef uint8_t *out = &out_view[0]
    cdef int64_t[::1] starts_view = new_starts
    spans = <Py_ssize_t *> malloc(2 * max(1, columns) * sizeof(Py_ssize_t))
    if spans == NULL:
        raise MemoryError
    with nogil:
        for row in range(rows):
            starts_view[row] = end
            at = starts[row]
            stop = at + lengths[row]
            column = 0
            while True:
                if column < columns:
                    spans[2 * column] = at
                code = next_field(data, &at, stop, delimiter, quote, &first, &last, &quoted, &escaped)
                if code != FINE:
                    break
                if column < columns:
                    spans[2 * column + 1] = at
                column += 1
                if at == stop:
                    break
                at += 1
            if code != FINE or column != columns:
                memcpy(out + end, data + starts[row], lengths[row])
                end += lengths[row]
                continue
            for column in range(columns):
                if column:
                    out[end] = <uint8_t> delimiter
                    end += 1
                at = spans[2 * order[column]]
                memcpy(out + end, data + at, spans[2 * order[column] + 1] - at)
                end += spans[2 * order[column] + 1] - at
    free(spans)
    return values, new_starts, new_lengths
