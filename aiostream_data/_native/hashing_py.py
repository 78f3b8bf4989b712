"""Compute a stream hash of consecutive rows, as two sums: the pure-Python version of ``hashing.pyx``.

How this works. The stream hash is two independent sums (the low and the high lane). Each lane hashes each row to 64
bits and adds the hashes modulo 2**64:

    hash(row) = finish(salt + ordinal * A + position * C + B)

In the low lane, ``finish`` is the finalizer of SplitMix64; in the high lane, it is the finalizer of MurmurHash3. Both
finalizers are bijections of 64-bit words. Each input bit changes about half of the output bits. The constants A, B and
C differ between the two lanes.

- A sum does not depend on the order of addition. Suppose that each of W ranks reads every W-th row of a stream. The
  sums of all ranks then add up to the sums of one process that reads all rows. The state of a running hash is two
  64-bit words. The stream hash depends on the row order, because each row's position is part of its hash.
- Two different rows with the same salt at two different positions have different finalizer inputs in at least one
  lane. The determinant of the constants A and C of the two lanes is an odd multiple of two. Therefore, equal inputs
  in both lanes would require row numbers and positions that each differ by 0 or 2**63.
- If the finalizers act like independent random functions, two different streams have equal sums with probability
  2**-128. The probability 2**-128 is a common heuristic, not a proof. A test measures the collision probability of
  truncated sums.
- The stream hash detects accidental differences only. The hash is not cryptographic: an attacker who chooses the rows
  can construct two streams with equal hashes.
- The hash identifies the origin of a row only by the row's salt. Salts are 64-bit hashes of names. Among n salts, two
  are equal with probability n**2 / 2**65. The hash cannot distinguish rows with equal salts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_WORD = 2**64

SPLIT_BITS = 40
"""Number of low bits of a split number that identify the split within its source."""

LOW_CONSTANTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x8CB92BA72F3D8DD7)
HIGH_CONSTANTS = (0xD1B54A32D192ED03, 0xE7037ED1A0B428DB, 0xA0761D6478BD642F)
"""Constants A, C and B of each hash lane.

A and C are odd. The determinant of the A and C values of both lanes is 2 modulo 4.
"""


def hash_rows(salts: NDArray[np.uint64], ordinals: NDArray[np.int64], first_index: int, step: int) -> tuple[int, int]:
    """Return the hash sums of the rows in the low lane and in the high lane, each modulo 2**64.

    Args:
        salts: 64-bit word that identifies source, epoch and split of each row; uint64 of shape (n,).
        ordinals: Number of each row in its split; int64 of shape (n,). The array can be a column of a larger array.
        first_index: Position of the first row in the stream, from 0, modulo 2**64.
        step: Difference between the positions of consecutive rows: the number of ranks that share the stream.

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
    """Hash rows of a single source like :func:`hash_rows`. Each row is identified by its id (split, ordinal).

    The salt of a row is ``salt + (split modulo 2**40) * of_split``, modulo 2**64.

    Args:
        ids: (split, ordinal) of each row, int64 of shape (n, 2), at least one row.
        source: Expected value of the high bits of each split number, starting at bit 40. If any row has another value,
            the function returns None.
        salt: 64-bit word that identifies the source and the epoch.
        of_split: Factor by which the split number within the source is multiplied.
        first_index: Position of the first row in the stream.
        step: Difference between the positions of consecutive rows.

    Raises:
        ValueError: The ids have another shape or dtype, or a number is out of range.
    """
    check_ids(ids, first_index, step)
    if (ids[:, 0] >> SPLIT_BITS != source).any():
        return None
    splits = (ids[:, 0] & ((1 << SPLIT_BITS) - 1)).astype(np.uint64)
    salts = splits * np.uint64(of_split) + np.uint64(salt)
    return hash_rows(salts, ids[:, 1], first_index, step)


def hash_run(salt: int, first_ordinal: int, rows: int, first_index: int, step: int) -> tuple[int, int]:
    """Hash rows with consecutive ordinals and one salt like :func:`hash_rows`.

    Args:
        salt: 64-bit word that identifies source, epoch and split of all rows.
        first_ordinal: Number of the first row in its split, below 2**63.
        rows: Number of rows.
        first_index: Position of the first row in the stream.
        step: Difference between the positions of consecutive rows.

    Raises:
        ValueError: A number is out of range.
    """
    check_consecutive(first_ordinal, rows, first_index, step)
    ordinals = np.arange(first_ordinal, first_ordinal + rows)
    return hash_rows(np.full(rows, salt, np.uint64), ordinals, first_index, step)


def check_consecutive(first_ordinal: int, rows: int, first_index: int, step: int) -> None:
    """Raise ``ValueError`` unless the arguments of :func:`hash_run` are valid.

    The native kernel also calls this function.
    """
    if first_ordinal < 0 or rows < 0 or first_ordinal + rows >= 1 << 63 or first_index < 0 or step < 1:
        raise ValueError(
            f"{rows} rows from ordinal {first_ordinal} at positions {first_index}, {first_index} + {step}, ... cannot "
            "be hashed"
        )


def check_ids(ids: NDArray[np.int64], first_index: int, step: int) -> None:
    """Raise ``ValueError`` unless the arguments of :func:`hash_ids` are valid.

    The native kernel also calls this function.
    """
    if ids.dtype != np.int64 or ids.ndim != 2 or ids.shape[1] != 2:
        raise ValueError(f"ids must be int64 of shape (rows, 2), got {ids.dtype}{list(ids.shape)}")
    if first_index < 0 or step < 1:
        raise ValueError(f"first_index must be at least 0 and step at least 1, got {first_index} and {step}")


def check_run(salts: NDArray[np.uint64], ordinals: NDArray[np.int64], first_index: int, step: int) -> None:
    """Raise ``ValueError`` unless the arguments of :func:`hash_rows` are valid.

    The native kernel also calls this function.
    """
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
