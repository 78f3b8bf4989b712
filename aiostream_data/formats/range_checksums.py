"""Compute CRC-32C checksums of many, possibly overlapping ranges of a buffer in one pass.

The checksum of a range B that follows a prefix A of the buffer is ``crc(B) = crc(AB) ^ shifted(crc(A), len(B))``.
Appending zero bytes changes a checksum by a linear map over GF(2). For ``2**k`` zero bytes, the map needs four table
lookups. The algorithm reads each byte of the buffer only once.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native

Checksums = NDArray[np.uint32]
Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_MASK_DELTA = np.uint32(0xA282EAD8)


def masked(checksums: Checksums) -> Checksums:
    """Apply the checksum mask of the TFRecord format to checksums."""
    found: Checksums = (checksums >> np.uint32(15) | checksums << np.uint32(17)) + _MASK_DELTA
    return found


def crc32c_words(words: NDArray[np.uint64]) -> Checksums:
    """Compute the CRC-32C of each 64-bit word, stored as 8 little-endian bytes."""
    zero, tables = _word_tables()
    parts = words.astype("<u8").view(np.uint8).reshape(-1, 8)
    found = np.full(len(parts), zero, np.uint32)
    for byte in range(8):
        found ^= tables[byte][parts[:, byte]]
    return found


def crc32c_ranges(values: Bytes, starts: Numbers, stops: Numbers) -> Checksums:
    """Compute the CRC-32C of ``values[starts[i] : stops[i]]`` for every ``i``.

    The run time is linear in the number of ranges plus the number of bytes between the smallest start and the largest
    stop.
    """
    if not len(starts):
        return np.empty(0, np.uint32)
    places, which = np.unique(np.concatenate([starts, stops]), return_inverse=True)
    view, crc32c = values.data, _native.crc32c
    bounds = places.tolist()
    prefix, prefixes, last = 0, [], bounds[0]
    for place in bounds:
        prefix = crc32c(view[last:place], prefix)
        prefixes.append(prefix)
        last = place
    of_starts, of_stops = np.array(prefixes, np.uint32)[which.reshape(2, -1)]
    found: Checksums = of_stops ^ _shifted(of_starts, stops - starts)
    return found


def _shifted(checksums: Checksums, nbytes: Numbers) -> Checksums:
    """Return each checksum as it would be after ``nbytes[i]`` zero bytes are appended to the data."""
    found = checksums.copy()
    for bit in range(int(nbytes.max()).bit_length()):
        rows = np.flatnonzero(nbytes >> bit & 1)
        found[rows] = _applied(_shift_table(bit), found[rows])
    return found


def _applied(table: Checksums, values: Checksums) -> Checksums:
    """Apply a linear map to 32-bit numbers. The map is given as one table of 256 entries for each byte."""
    parts = values.astype("<u4").view(np.uint8).reshape(-1, 4)
    found: Checksums = table[0][parts[:, 0]]
    for byte in range(1, 4):
        found = found ^ table[byte][parts[:, byte]]
    return found


@cache
def _shift_table(bit: int) -> Checksums:
    """Return the tables of the linear map that updates a checksum for ``2**bit`` appended zero bytes."""
    if bit:
        half = _shift_table(bit - 1)
        return _applied(half, half.reshape(-1)).reshape(4, 256)
    byte = np.arange(256, dtype=np.uint32)
    # crc(byte) ^ crc(zero byte) is the byte's entry in the CRC table.
    zero = _native.crc32c(b"\0")
    first = np.array([_native.crc32c(bytes([value])) ^ zero for value in range(256)], np.uint32)
    return np.stack([first, byte, byte << np.uint32(8), byte << np.uint32(16)])


@cache
def _word_tables() -> tuple[np.uint32, Checksums]:
    """Return the checksum of 8 zero bytes, and a table of checksum changes (XOR) for each value of each byte."""
    zero = _native.crc32c(bytes(8))
    table = [
        [_native.crc32c(bytes(byte) + bytes([value]) + bytes(7 - byte)) ^ zero for value in range(256)]
        for byte in range(8)
    ]
    return np.uint32(zero), np.array(table, np.uint32)
