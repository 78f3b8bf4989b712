"""Hash a run of a stream's rows into two sums that add up: the clear twin of ``hashing.pyx``.

How this works. Each of two lanes hashes every row into 64 bits, and adds the hashes modulo 2**64:

    hash(row) = finish(salt + ordinal * A + position * C + B)

``finish`` is the finaliser of SplitMix64 in the low lane and that of MurmurHash3 in the high one: bijections of
64 bits in which each bit that goes in changes about half of those that come out. A, B and C differ by lane.

- A sum does not care who adds, or when: the sums of ranks that read every W-th row of a stream are those of one
  process that reads all of it, and a running hash keeps two words. Order still counts, through the position.
- Within a salt, no two rows at any two positions agree in both lanes before the finalisers: both numbers would
  have to differ by 0 or 2**63, because the determinant of the A and C is an odd multiple of two.
- Two streams that differ share both sums with a chance of 2**-128, under the usual heuristic that finalisers
  give unrelated random numbers. A test measures this for parts of the sums that are small enough; it is not
  proved.
- It tells accidents, and is no cryptographic hash: who may choose the rows can make two streams that agree.
- The salt is all that is known of where a row is from. Of n salts that are 64-bit hashes of names, two are
  equal with a chance of n**2 / 2**65, and their rows are then taken for each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_WORD = 2**64

SPLIT_BITS = 40
"""Bits of a split number that count inside its source."""

LOW_CONSTANTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x8CB92BA72F3D8DD7)
HIGH_CONSTANTS = (0xD1B54A32D192ED03, 0xE7037ED1A0B428DB, 0xA0761D6478BD642F)
"""A, C and B of a lane. A and C are odd, and their determinant is 2 modulo 4."""


def hash_rows(salts: NDArray[np.uint64], ordinals: NDArray[np.int64], first_index: int, step: int) -> tuple[int, int]:
    """Return the low and the high lane's sum over the rows, each modulo 2**64.

    Args:
        salts: (n,), what tells the row's source, epoch and split from others.
        ordinals: (n,), the row's place in its split; may be a column of a larger array.
        first_index: Position of the first row in the whole stream, from 0; counted modulo 2**64.
        step: From one row's position to the next; the number of ranks that share the stream.

    Raises:
        ValueError: The arrays are not vectors of one length and of those dtypes, or a number is out of range.
    """
    check_run(salts, ordinals, first_index, step)
    low = _lane(salts, ordinals, first_index, step, LOW_CONSTANTS, _splitmix_finish)
    high = _lane(salts, ordinals, first_index, step, HIGH_CONSTANTS, _murmur_finish)
    return low, high


def hash_ids(
    ids: NDArray[np.int64], source: int, salt: int, of_split: int, first_index: int, step: int
) -> tuple[int, int] | None:
    """Return what :func:`hash_rows` does, for rows of one source that are named by (split, ordinal).

    Their salts are ``salt + (split modulo 2**40) * of_split``, modulo 2**64.

    Args:
        ids: (n, 2), at least one row.
        source: What splits hold in their bits from 40 on; None is returned when a row's holds something else.

    Raises:
        ValueError: The ids are not of that shape and dtype, or a number is out of range.
    """
    check_ids(ids, first_index, step)
    if (ids[:, 0] >> SPLIT_BITS != source).any():
        return None
    splits = (ids[:, 0] & ((1 << SPLIT_BITS) - 1)).astype(np.uint64)
    salts = splits * np.uint64(of_split) + np.uint64(salt)
    return hash_rows(salts, ids[:, 1], first_index, step)


def check_ids(ids: NDArray[np.int64], first_index: int, step: int) -> None:
    """Refuse what cannot be the ids of a run of rows; both kernels do."""
    if ids.dtype != np.int64 or ids.ndim != 2 or ids.shape[1] != 2:
        raise ValueError(f"ids must be int64 of shape (rows, 2), got {ids.dtype}{list(ids.shape)}")
    if first_index < 0 or step < 1:
        raise ValueError(f"first_index must be at least 0 and step at least 1, got {first_index} and {step}")


def check_run(salts: NDArray[np.uint64], ordinals: NDArray[np.int64], first_index: int, step: int) -> None:
    """Refuse what cannot be a run of rows; both kernels do."""
    if salts.dtype != np.uint64 or ordinals.dtype != np.int64 or salts.ndim != 1 or salts.shape != ordinals.shape:
        raise ValueError(
            "salts and ordinals must be vectors of one length, uint64 and int64; "
            f"they are {salts.dtype}{list(salts.shape)} and {ordinals.dtype}{list(ordinals.shape)}"
        )
    if first_index < 0 or step < 1:
        raise ValueError(f"first_index must be at least 0 and step at least 1, got {first_index} and {step}")


def _lane(
    salts: NDArray[np.uint64],
    ordinals: NDArray[np.int64],
    first_index: int,
    step: int,
    constants: tuple[int, int, int],
    finish: Callable[[NDArray[np.uint64]], None],
) -> int:
    of_ordinal, of_position, offset = constants
    hashes = np.arange(len(ordinals), dtype=np.uint64)
    hashes *= np.uint64(step * of_position % _WORD)
    hashes += np.uint64((first_index * of_position + offset) % _WORD)
    hashes += ordinals.astype(np.uint64) * np.uint64(of_ordinal)
    hashes += salts
    finish(hashes)
    return int(hashes.sum(dtype=np.uint64))


def _splitmix_finish(words: NDArray[np.uint64]) -> None:
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)


def _murmur_finish(words: NDArray[np.uint64]) -> None:
    words ^= words >> np.uint64(33)
    words *= np.uint64(0xFF51AFD7ED558CCD)
    words ^= words >> np.uint64(33)
    words *= np.uint64(0xC4CEB9FE1A85EC53)
    words ^= words >> np.uint64(33)
