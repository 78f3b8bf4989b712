"""Counter-based random numbers: each draw depends only on a key and a position.

The generators have no state: draw ``i`` of a key is a hash of the pair (key, i). Draws therefore do not depend on the
order of calls or on the worker. A resumed run needs only the position. The hash function is the output function of the
SplitMix64 generator, applied to a Weyl sequence. Keys are BLAKE2b hashes of the random seed and a path of names.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native import draws_py, philox_py

_LOW_HALF = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def key_of(seed: int, *names: str | int) -> np.uint64:
    """Return the random key for a seed and a path of names.

    The key of a seed and a path is the same on all platforms and in all releases.

    Different paths have independent keys: ``("a", "b")``, ``("ab",)`` and ``("a", 1)`` all differ.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (seed, *names):
        encoded = f"{type(part).__name__}:{part}".encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return np.uint64(int.from_bytes(digest.digest(), "little"))


def words(key: np.uint64, first: int, count: int) -> NDArray[np.uint64]:
    """Return the random draws ``first`` to ``first + count`` (exclusive) of ``key``, as uint64."""
    return draws_py.words(_start(key, first), count)


def _start(key: np.uint64, first: int) -> int:
    return (int(key) + (first + 1) * draws_py.WEYL) % 2**64


def draws_below(key: np.uint64, first: int, bounds: int | NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return draws ``first`` to ``first + count`` (exclusive) of ``key``, each uniform from 0 to its exclusive bound.

    Args:
        bounds: One exclusive bound for all draws, or one bound per draw; from 1 to 2**63 - 1. The relative bias between
            the most likely and the least likely value is at most bound / 2**64.
    """
    if isinstance(bounds, int) and bounds <= 1 << 32:
        return _native.words_below(_start(key, first), bounds, count)
    drawn = words(key, first, count)
    limits = np.broadcast_to(np.asarray(bounds, np.uint64), drawn.shape)
    return _high_product(drawn, limits).view(np.int64)


def permutation(key: np.uint64, n: int) -> NDArray[np.int64]:
    """Return a uniformly random permutation of ``range(n)``. The permutation depends only on ``key`` and ``n``."""
    return np.argsort(words(key, 0, n), kind="stable").astype(np.int64, copy=False)


class RecordGenerator:
    """NumPy random generator that can be moved cheaply to the random stream of any row.

    Each thread must use its own instance of this class.

    Each row has its own range of 2**128 Philox counter blocks. A user function therefore draws the same numbers for a
    row on any worker and in any processing order.
    """

    def __init__(self, key: np.uint64) -> None:
        philox = np.random.Philox(key=int(key))
        self._generator = np.random.Generator(philox)
        self._seek = _seeker(philox).seek

    def at(self, split: int, ordinal: int) -> np.random.Generator:
        """Return the random generator, moved to the start of the row's random stream.

        The returned generator is valid until the next call of this method.
        """
        self._seek(split % 2**64, ordinal % 2**64)
        return self._generator


def _seeker(philox: np.random.Philox) -> _native.PhiloxSeeker:
    try:
        return _native.PhiloxSeeker(philox)
    except ValueError:  # this version of NumPy stores the state in another way
        return philox_py.PhiloxSeeker(philox)


def _high_product(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the high 64 bits of the 128-bit products of two arrays, computed from 32-bit halves."""
    a_low, a_high, b_low, b_high = a & _LOW_HALF, a >> _32, b & _LOW_HALF, b >> _32
    middle = a_high * b_low + (a_low * b_low >> _32)
    high: NDArray[np.uint64] = a_high * b_high + (middle >> _32) + ((a_low * b_high + (middle & _LOW_HALF)) >> _32)
    return high
