"""Generate random 64-bit words: the pure-Python version of ``draws.pyx``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WEYL = 0x9E3779B97F4A7C15
"""Increment of the Weyl sequence of SplitMix64. The hashes of this sequence are the random words."""

_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_27, _30, _31, _32 = (np.uint64(bits) for bits in (27, 30, 31, 32))


def words(start: int, count: int) -> NDArray[np.uint64]:
    """Return ``count`` 64-bit words: the hashes of a Weyl sequence starting at ``start``."""
    positions = np.arange(count, dtype=np.uint64)
    positions *= np.uint64(WEYL)
    positions += np.uint64(start)
    return mixed(positions)


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Replace each word of the array by its hash, with the bijective hash of SplitMix64. Return the array."""
    words ^= words >> _30
    words *= _MIX_1
    words ^= words >> _27
    words *= _MIX_2
    words ^= words >> _31
    return words


def words_below(start: int, bound: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` uniformly random int64 numbers from 0 to ``bound`` (exclusive). ``bound`` is at most 2**32.

    Raises:
        ValueError: ``bound`` or ``count`` is out of range.
    """
    if not 0 < bound <= 1 << 32 or count < 0:
        raise ValueError(f"{count} draws below {bound}")
    drawn = words(start, count)
    # Compute the high 64 bits of a 64 x 32 bit product from two halves.
    low = drawn & _LOW_HALF
    low *= np.uint64(bound)
    low >>= _32
    drawn >>= _32
    drawn *= np.uint64(bound)
    drawn += low
    drawn >>= _32
    return drawn.view(np.int64)
