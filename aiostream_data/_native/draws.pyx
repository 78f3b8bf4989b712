# cython: boundscheck=False, wraparound=False
"""Draw bounded random numbers; ``draws_py`` is the pure-Python twin.

The kernel keeps the GIL, because the draws of a chunk take a few microseconds and reacquiring the GIL can take longer.
"""

from libc.stdint cimport int64_t, uint64_t

import numpy as np


def words_below(start, bound, Py_ssize_t count):
    """Return ``count`` int64 numbers below ``bound``, from the hashes of a Weyl sequence starting at ``start``."""
    if not 0 < bound <= 1 << 32 or count < 0:
        raise ValueError(f"{count} draws below {bound}")
    cdef uint64_t position = start, limit = bound, word
    out = np.empty(count, np.int64)
    cdef int64_t[::1] drawn = out
    cdef Py_ssize_t i
    for i in range(count):
        word = position
        position += 0x9E3779B97F4A7C15ULL
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL
        word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL
        word ^= word >> 31
        # Compute the high 64 bits of a 64 x 32 bit product from two halves.
        drawn[i] = <int64_t>(((word >> 32) * limit + (((word & 0xFFFFFFFFULL) * limit) >> 32)) >> 32)
    return out
