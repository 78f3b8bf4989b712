# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Hash a run of rows of a stream into two sums; ``hashing_py`` is the pure-Python twin."""

from libc.stdint cimport int64_t, uint64_t

from aiostream_data._native.hashing_py import check_consecutive, check_ids, check_run

cdef enum:
    KEEP_GIL_ROWS = 1 << 15  # takes about 100 microseconds to hash; reacquiring the GIL can take longer


def hash_rows(salts, ordinals, first_index, step):
    """Return the sums of the low and the high lane over the rows, each modulo 2**64."""
    check_run(salts, ordinals, first_index, step)
    cdef const uint64_t[:] salt_of = salts
    cdef const int64_t[:] ordinal_of = ordinals
    cdef uint64_t first = first_index % 2**64, stride = step % 2**64, low = 0, high = 0
    if salt_of.shape[0] <= KEEP_GIL_ROWS:
        add_rows(salt_of, ordinal_of, first, stride, &low, &high)
    else:
        with nogil:
            add_rows(salt_of, ordinal_of, first, stride, &low, &high)
    return low, high


def hash_ids(ids, source, salt, of_split, first_index, step):
    """Return the lane sums over rows of ``source``, or None if a row has another source. Never releases the GIL."""
    check_ids(ids, first_index, step)
    cdef const int64_t[:, :] id_of = ids
    cdef int64_t one_source = source
    cdef uint64_t base = salt, factor = of_split, first = first_index % 2**64, stride = step % 2**64
    cdef uint64_t low_place = first * 0xC2B2AE3D27D4EB4FULL + 0x8CB92BA72F3D8DD7ULL
    cdef uint64_t high_place = first * 0xE7037ED1A0B428DBULL + 0xA0761D6478BD642FULL
    cdef uint64_t low_step = stride * 0xC2B2AE3D27D4EB4FULL, high_step = stride * 0xE7037ED1A0B428DBULL
    cdef uint64_t low = 0, high = 0, word, ordinal
    cdef Py_ssize_t i
    for i in range(id_of.shape[0]):
        if (id_of[i, 0] >> 40) != one_source:
            return None
        word = base + (<uint64_t>id_of[i, 0] & 0xFFFFFFFFFFULL) * factor
        ordinal = <uint64_t>id_of[i, 1]
        low += splitmix_finish(word + ordinal * 0x9E3779B97F4A7C15ULL + low_place)
        high += murmur_finish(word + ordinal * 0xD1B54A32D192ED03ULL + high_place)
        low_place += low_step
        high_place += high_step
    return low, high


def hash_run(salt, first_ordinal, rows, first_index, step):
    """Return the sums of consecutive rows with one salt. Never releases the GIL."""
    check_consecutive(first_ordinal, rows, first_index, step)
    cdef uint64_t word = salt, ordinal = first_ordinal, first = first_index % 2**64, stride = step % 2**64
    cdef uint64_t low_word = word + ordinal * 0x9E3779B97F4A7C15ULL + first * 0xC2B2AE3D27D4EB4FULL + 0x8CB92BA72F3D8DD7ULL
    cdef uint64_t high_word = word + ordinal * 0xD1B54A32D192ED03ULL + first * 0xE7037ED1A0B428DBULL + 0xA0761D6478BD642FULL
    cdef uint64_t low_step = stride * 0xC2B2AE3D27D4EB4FULL + 0x9E3779B97F4A7C15ULL
    cdef uint64_t high_step = stride * 0xE7037ED1A0B428DBULL + 0xD1B54A32D192ED03ULL
    cdef uint64_t low = 0, high = 0
    cdef Py_ssize_t i, count = rows
    for i in range(count):
        low += splitmix_finish(low_word)
        high += murmur_finish(high_word)
        low_word += low_step
        high_word += high_step
    return low, high


cdef void add_rows(
    const uint64_t[:] salts,
    const int64_t[:] ordinals,
    uint64_t first,
    uint64_t step,
    uint64_t* low_out,
    uint64_t* high_out,
) noexcept nogil:
    cdef uint64_t low_place = first * 0xC2B2AE3D27D4EB4FULL + 0x8CB92BA72F3D8DD7ULL
    cdef uint64_t high_place = first * 0xE7037ED1A0B428DBULL + 0xA0761D6478BD642FULL
    cdef uint64_t low_step = step * 0xC2B2AE3D27D4EB4FULL, high_step = step * 0xE7037ED1A0B428DBULL
    cdef uint64_t low = 0, high = 0, salt, ordinal
    cdef Py_ssize_t i
    for i in range(salts.shape[0]):
        salt = salts[i]
        ordinal = <uint64_t>ordinals[i]
        low += splitmix_finish(salt + ordinal * 0x9E3779B97F4A7C15ULL + low_place)
        high += murmur_finish(salt + ordinal * 0xD1B54A32D192ED03ULL + high_place)
        low_place += low_step
        high_place += high_step
    low_out[0] = low
    high_out[0] = high


cdef inline uint64_t splitmix_finish(uint64_t word) noexcept nogil:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL
    return word ^ (word >> 31)


cdef inline uint64_t murmur_finish(uint64_t word) noexcept nogil:
    word = (word ^ (word >> 33)) * 0xFF51AFD7ED558CCDULL
    word = (word ^ (word >> 33)) * 0xC4CEB9FE1A85EC53ULL
    return word ^ (word >> 33)
