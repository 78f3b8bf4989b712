"""The functions that P6 maps: one that computes in Python, one that releases the GIL, one that waits.

Each maps a number to a number, and what it must give is known in closed form, so that checking costs nothing.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SPIN_STEPS = 270
"""Makes ``spin`` about 20 us on the machine where this was written."""

BLOCK = bytes(range(256)) * 3_400
"""Makes ``checksum`` about 200 us there; zlib works on it without the GIL."""

NAP_S = 0.020
NAPS_AT_ONCE = 256

_FACTOR, _TERM, _MASK = 1_103_515_245, 12_345, (1 << 31) - 1


def spin(number: int) -> int:
    """Work in pure Python: a linear congruential generator, some steps from ``number`` on."""
    for _ in range(SPIN_STEPS):
        number = (number * _FACTOR + _TERM) & _MASK
    return number


def checksum(number: int) -> int:
    """Return the CRC-32 of a block, begun at ``number``."""
    return zlib.crc32(BLOCK, number)


async def nap(number: int) -> int:
    """Wait as for an answer from a server."""
    await asyncio.sleep(NAP_S)
    return number + 1


def nap_on_a_thread(number: int) -> int:
    """Wait the same time, for those who cannot await."""
    time.sleep(NAP_S)
    return number + 1


async def naps(numbers: list[int], at_once: int = NAPS_AT_ONCE) -> list[int]:
    """Nap for every number, so many at once, for those who can run a loop only inside of a function."""
    if len(numbers) <= at_once:
        return await asyncio.gather(*map(nap, numbers))
    places = asyncio.Semaphore(at_once)

    async def one(number: int) -> int:
        async with places:
            return await nap(number)

    return await asyncio.gather(*map(one, numbers))


FUNCTIONS: dict[str, Callable[[int], int]] = {"spin": spin, "checksum": checksum, "nap": nap_on_a_thread}


def spun(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what ``spin`` gives, all at once: so many affine steps are one affine step."""
    factor, term = 1, 0
    for _ in range(SPIN_STEPS):
        factor, term = factor * _FACTOR & _MASK, (term * _FACTOR + _TERM) & _MASK
    steps = numbers.astype(np.uint64) * np.uint64(factor) + np.uint64(term)  # modulo 2**64, of which 2**31 is a divisor
    return (steps & np.uint64(_MASK)).astype(np.int64)


def checksums(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what ``checksum`` gives, all at once: a CRC is linear in its start, bit by bit."""
    of_zero = checksum(0)
    results = np.full(len(numbers), of_zero, np.int64)
    for bit in range(32):
        results ^= np.where(numbers >> bit & 1, checksum(1 << bit) ^ of_zero, 0)
    return results
