"""Hash a run of rows of a stream into two sums: the pure-Python twin of ``hashing.pyx``.

How this works. Each of two lanes hashes each row to 64 bits and adds the hashes modulo 2**64:

    hash(row) = finish(salt + ordinal * A + position * C + B)

``finish`` is the finalizer of SplitMix64 in the low lane, and of MurmurHash3 in the high lane. Both are bijections of
64-bit words in which each input bit changes about half of the output bits. A, B and C differ by lane.

- Sums are independent of the order of addition. So the sums of ranks that read every W-th row of a stream add up to
  those of one process that reads all rows. A running hash is two words. The hash depends on row order through the
  position.
- For one salt, two rows at two positions never agree in both lanes before the finalizers. Both numbers would have to
  differ by 0 or 2**63, because the determinant of the A and C is an odd multiple of two.
- Two different streams have equal sums with probability 2**-128, if finalizers act like independent random functions.
  This is a common heuristic, not a proof. A test measures it for truncated sums.
- The hash detects accidental differences. It is not cryptographic: an attacker who chooses the rows can construct two
  streams with equal hashes.
- The salt alone identifies the origin of a row. Among n salts, which are 64-bit hashes of names, two are equal with
  probability n**2 / 2**65. Their rows are then indistinguishable.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_WORD = 2**64

SPLIT_BITS = 40
"""Number of low bits of a split number that hold the number within its source."""

LOW_CONSTANTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x8CB92BA72F3D8DD7)
HIGH_CONSTANTS = (0xD1B54A32D192ED03, 0xE7037ED1A0B428DB, 0xA0761D6478BD642F)
"""Constants A, C and B of each lane. A and C are odd, and their determinant is 2 modulo 4."""


def hash_rows(salts: NDArray[np.uint64], ordinals: NDArray[np.int64], first_index: int, step: int) -> tuple[int, int]:
    """Return the sums of the low and the high lane over the rows, each modulo 2**64.

    Args:
        salts: Word for source, epoch and split of each row, uint64 of shape (n,).
        ordinals: Number of each row in its split, int64 of shape (n,). Can be a column of a larger array.
        first_index: Position of the first row in the stream, from 0, modulo 2**64.
        step: Difference between the positions of two rows: the number of ranks that share the stream.

    Raises:
        ValueError: The arrays are not vectors of equal length with these dtypes, or a number is out of range.
    """
    check_run(salts, ordinals, first_index, step)
    low = _lane(salts, ordinals, first_index, step, LOW_CONSTANTS, _splitmix_finish)
    high = _lane(salts, ordinals, first_index, step, HIGH_CONSTANTS, _murmur_finish)
    return low, high


def hash_ids(
    ids: NDArray[np.int64], source: int, salt: int, of_split: int, first_index: int, step: int
) -> tuple[int, int] | None:
    """Hash rows of a single source, given as (split, ordinal), like :func:`hash_rows`.

    The salt of a row is ``salt + (split modulo 2**40) * of_split``, modulo 2**64.

    Args:
        ids: (split, ordinal) of each row, int64 of shape (n, 2), at least one row.
        source: Expected value of the split numbers' bits from bit 40 on. If a row has another value, return None.
        salt: Word for source and epoch.
        of_split: Factor for the split number within the source.
        first_index: Position of the first row in the stream.
        step: Difference between the positions of two rows.

    Raises:
        ValueError: The ids have another shape or dtype, or a number is out of range.
    """
    check_ids(ids, first_index, step)
    if (ids[:, 0] >> SPLIT_BITS != source).any():
        return None
    splits = (ids[:, 0] & ((1 << SPLIT_BITS) - 1)).astype(np.uint64)
    salts = splits * np.uint64(of_split) + np.uint64(salt)
    return hash_rows(salts, ids[:, 1], first_index, step)


def check_ids(ids: NDArray[np.int64], first_index: int, step: int) -> None:
    """Raise ``ValueError`` unless the arguments are a valid run of rows by id. Both kernels call this check."""
    if ids.dtype != np.int64 or ids.ndim != 2 or ids.shape[1] != 2:
        raise ValueError(f"ids must be int64 of shape (rows, 2), got {ids.dtype}{list(ids.shape)}")
    if first_index < 0 or step < 1:
        raise ValueError(f"first_index must be at least 0 and step at least 1, got {first_index} and {step}")


def check_run(salts: NDArray[np.uint64], ordinals: NDArray[np.int64], first_index: int, step: int) -> None:
    """Raise ``ValueError`` unless the arguments are a valid run of rows. Both kernels call this check."""
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
