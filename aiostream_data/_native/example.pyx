# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Parse ``tf.train.Example`` messages directly to columns, without the GIL; ``example_py`` is the pure-Python twin.

A reader returns the position after the bytes it read, ``-1 - at`` for damage at ``at``, or ``INT64_MIN`` if memory is
exhausted. Each read is checked against the end of its message.

The parser remembers the key at each position of the previous record. Writers usually repeat the order of keys, so a
look-up is one comparison of length and bytes, also for unwanted features.
"""

from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from aiostream_data._native.example_column cimport (
    CODE_MISSING,
    CODE_WRONG_COUNT,
    CODE_WRONG_KIND,
    KIND_BYTES,
    KIND_FLOAT,
    KIND_INT64,
    Column,
    read_bytes_list,
    read_float_list,
    read_int64_list,
    settle_row,
)
from aiostream_data._native.wire cimport read_length, read_tag, skip_field

import numpy as np

from aiostream_data._native.example_py import (
    ANY_NUMBER,
    BYTES,
    FLOAT,
    INT64,
    ParseFault,
    ParsedFeature,
    MALFORMED,
    MISSING,
    WRONG_COUNT,
    WRONG_KIND,
)

cdef enum:
    CODE_MALFORMED = 1
    CODE_OUTSIDE = 5
    CODE_NO_MEMORY = 6
    REMEMBERED = 256  # number of key positions per record that are remembered


assert (BYTES, FLOAT, INT64) == (KIND_BYTES, KIND_FLOAT, KIND_INT64)
assert (MALFORMED, WRONG_KIND, WRONG_COUNT, MISSING) == (
    CODE_MALFORMED, CODE_WRONG_KIND, CODE_WRONG_COUNT, CODE_MISSING
)


cdef struct Place:
    const uint8_t* key
    int64_t key_nbytes
    int32_t column    # -1: unwanted feature


cdef struct Parse:
    const uint8_t* base
    Column* columns
    int32_t column_count
    Place* places
    int32_t place     # number of map entries read in this record


cdef struct Outcome:
    int64_t record
    int32_t feature
    int code
    int64_t found


cdef int64_t read_feature(const uint8_t* base, int64_t at, int64_t stop, Column* column) noexcept nogil:
    cdef uint64_t tag = 0
    cdef int64_t length = 0
    cdef int64_t end
    cdef int kind
    column.found = 0
    column.count = 0
    while at < stop:
        at = read_tag(base, at, stop, &tag)
        if at < 0:
            return at
        if tag != 0x0A and tag != 0x12 and tag != 0x1A:
            at = skip_field(base, at, stop, tag)
            if at < 0:
                return at
            continue
        at = read_length(base, at, stop, &length)
        if at < 0:
            return at
        kind = <int>(tag >> 3)
        if kind != column.found:
            column.found = kind
            column.count = 0
        end = at + length
        if kind == column.kind:
            if kind == KIND_INT64:
                at = read_int64_list(base, at, end, column)
            elif kind == KIND_FLOAT:
                at = read_float_list(base, at, end, column)
            else:
                at = read_bytes_list(base, at, end, column)
            if at < 0:
                return at
        at = end
    return at


cdef inline bint same_bytes(const uint8_t* a, int64_t a_nbytes, const uint8_t* b, int64_t b_nbytes) noexcept nogil:
    return a_nbytes == b_nbytes and memcmp(a, b, <size_t>a_nbytes) == 0


cdef int32_t search(Parse* parse, const uint8_t* key, int64_t key_nbytes) noexcept nogil:
    cdef int32_t i
    for i in range(parse.column_count):
        if same_bytes(key, key_nbytes, parse.columns[i].name, parse.columns[i].name_nbytes):
            return i
    return -1


cdef inline int32_t look_up(Parse* parse, const uint8_t* key, int64_t key_nbytes) noexcept nogil:
    """Return the column number of a key, or -1."""
    cdef Place* place
    if parse.place >= REMEMBERED:
        return search(parse, key, key_nbytes)
    place = &parse.places[parse.place]
    parse.place += 1
    if place.key == NULL or not same_bytes(key, key_nbytes, place.key, place.key_nbytes):
        place.column = search(parse, key, key_nbytes)
        place.key = key
        place.key_nbytes = key_nbytes
    return place.column


cdef int64_t read_entry(Parse* parse, int64_t at, int64_t stop) noexcept nogil:
    """Read a map entry. Key and value can be in any order; the last of each counts."""
    cdef const uint8_t* base = parse.base
    cdef uint64_t tag = 0
    cdef int64_t length = 0
    cdef int64_t key = stop
    cdef int64_t key_nbytes = 0
    cdef int64_t value = stop
    cdef int64_t value_nbytes = 0
    cdef int32_t column
    while at < stop:
        at = read_tag(base, at, stop, &tag)
        if at < 0:
            return at
        if tag != 0x0A and tag != 0x12:
            at = skip_field(base, at, stop, tag)
            if at < 0:
                return at
            continue
        at = read_length(base, at, stop, &length)
        if at < 0:
            return at
        if tag == 0x0A:
            key = at
            key_nbytes = length
        else:
            value = at
            value_nbytes = length
        at += length
    column = look_up(parse, base + key, key_nbytes)
    if column >= 0:
        value = read_feature(base, value, value + value_nbytes, &parse.columns[column])
        if value < 0:
            return value
    return at


cdef int64_t read_features(Parse* parse, int64_t at, int64_t stop) noexcept nogil:
    cdef uint64_t tag = 0
    cdef int64_t length = 0
    while at < stop:
        at = read_tag(parse.base, at, stop, &tag)
        if at < 0:
            return at
        if tag == 0x0A:
            at = read_length(parse.base, at, stop, &length)
            if at >= 0:
                at = read_entry(parse, at, at + length)
        else:
            at = skip_field(parse.base, at, stop, tag)
        if at < 0:
            return at
    return at


cdef int64_t read_example(Parse* parse, int64_t at, int64_t stop) noexcept nogil:
    cdef uint64_t tag = 0
    cdef int64_t length = 0
    parse.place = 0
    while at < stop:
        at = read_tag(parse.base, at, stop, &tag)
        if at < 0:
            return at
        if tag == 0x0A:
            at = read_length(parse.base, at, stop, &length)
            if at >= 0:
                at = read_features(parse, at, at + length)
        else:
            at = skip_field(parse.base, at, stop, tag)
        if at < 0:
            return at
    return at


cdef void parse_rows(
    Parse* parse, const int64_t* starts, const int64_t* lengths, int64_t rows, int64_t total, Outcome* outcome
) noexcept nogil:
    cdef int64_t row, at
    cdef int32_t i
    for row in range(rows):
        outcome.record = row
        if starts[row] < 0 or starts[row] > total or lengths[row] < 0 or lengths[row] > total - starts[row]:
            outcome.code = CODE_OUTSIDE
            return
        for i in range(parse.column_count):
            parse.columns[i].found = 0
            parse.columns[i].count = 0
        at = read_example(parse, starts[row], starts[row] + lengths[row])
        if at < 0:
            outcome.code = CODE_NO_MEMORY if at == INT64_MIN else CODE_MALFORMED
            outcome.found = -1 - at - starts[row] if at != INT64_MIN else 0
            return
        for i in range(parse.column_count):
            outcome.code = settle_row(&parse.columns[i], row, &outcome.found)
            if outcome.code:
                outcome.feature = i
                return


cdef class Columns:
    """Columns under construction, in C memory if rows vary in length, else in NumPy arrays."""

    cdef Column* columns
    cdef Place* places
    cdef int32_t count
    cdef list names   # own the bytes that Column.name points to
    cdef list arrays  # own the memory of sized columns, and of all counts

    def __cinit__(self, wanted, rows):
        cdef Column* column
        self.names = [want.name for want in wanted]
        self.arrays = []
        self.columns = <Column*>calloc(max(len(wanted), 1), sizeof(Column))
        self.places = <Place*>calloc(REMEMBERED, sizeof(Place))
        if self.columns == NULL or self.places == NULL:
            raise MemoryError
        self.count = len(wanted)
        for i, want in enumerate(wanted):
            if want.kind not in (KIND_BYTES, KIND_FLOAT, KIND_INT64) or want.size == 0 or want.size < ANY_NUMBER:
                raise ValueError(f"no such feature: {want}")
            column = &self.columns[i]
            column.name = <const uint8_t*><const char*>(<bytes>self.names[i])
            column.name_nbytes = len(self.names[i])
            column.kind = want.kind
            column.size = want.size
            column.required = want.required
            places = rows * max(want.size, 0)  # Python integers cannot overflow
            # Each entry is written: with a value, or with 0 if the row has none.
            data = np.empty(places, np.float32 if column.kind == KIND_FLOAT else np.int64)
            nbytes = np.empty(places if column.kind == KIND_BYTES else 0, np.int64)
            counts = np.empty(rows, np.int64)
            self.arrays.append((data, nbytes, counts))
            column.counts = data_of_longs(counts)
            if column.size < 0:
                continue
            column.capacity = places
            if column.kind == KIND_FLOAT:
                column.floats = data_of_floats(data)
            else:
                column.longs = data_of_longs(data)
            column.nbytes = data_of_longs(nbytes)

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.count):
            if self.columns[i].size < 0:
                free(self.columns[i].longs)
                free(self.columns[i].nbytes)
                free(self.columns[i].floats)
        free(self.columns)
        free(self.places)

    cdef object finish(self, int32_t i):
        """Return the finished column i. Columns of variable length are copied from C memory to arrays."""
        cdef Column* column = &self.columns[i]
        data, nbytes, counts = self.arrays[i]
        if column.size < 0 and column.first > 0:
            if column.kind == KIND_FLOAT:
                data = np.empty(column.first, np.float32)
                memcpy(data_of_floats(data), column.floats, <size_t>(4 * column.first))
            else:
                data = np.empty(column.first, np.int64)
                memcpy(data_of_longs(data), column.longs, <size_t>(8 * column.first))
            if column.kind == KIND_BYTES:
                nbytes = np.empty(column.first, np.int64)
                memcpy(data_of_longs(nbytes), column.nbytes, <size_t>(8 * column.first))
        return ParsedFeature(data, nbytes, counts)


cdef int64_t* data_of_longs(array):
    cdef int64_t[::1] view = array
    return &view[0] if view.shape[0] else NULL


cdef uint8_t* data_of_floats(array):
    cdef float[::1] view = array
    return <uint8_t*>&view[0] if view.shape[0] else NULL


def parse_examples(values, starts, lengths, wanted):
    """Parse records like :func:`aiostream_data._native.example_py.parse_examples`, without the GIL."""
    cdef const uint8_t[::1] buffer = np.ascontiguousarray(values)
    cdef const int64_t[::1] first = np.ascontiguousarray(starts)
    cdef const int64_t[::1] nbytes = np.ascontiguousarray(lengths)
    cdef int64_t rows = first.shape[0]
    cdef int64_t total = buffer.shape[0]
    cdef uint8_t nothing = 0
    cdef Parse parse
    cdef Outcome outcome = Outcome(0, 0, 0, 0)
    if nbytes.shape[0] != rows:
        raise ValueError(f"{rows} starts and {nbytes.shape[0]} lengths")
    columns = Columns(wanted, rows)
    parse.base = &buffer[0] if total else &nothing
    parse.columns = columns.columns
    parse.column_count = columns.count
    parse.places = columns.places
    parse.place = 0
    if rows:
        with nogil:
            parse_rows(&parse, &first[0], &nbytes[0], rows, total, &outcome)
    if outcome.code == CODE_OUTSIDE:
        start, length = starts[outcome.record], lengths[outcome.record]
        raise IndexError(f"record {start}+{length} is outside a buffer of {total}")
    if outcome.code == CODE_NO_MEMORY:
        raise MemoryError
    if outcome.code:
        feature = -1 if outcome.code == CODE_MALFORMED else outcome.feature
        return ParseFault(outcome.record, feature, outcome.code, outcome.found)
    return [columns.finish(i) for i in range(columns.count)]
