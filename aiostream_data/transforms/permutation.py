"""Random permutation of ``range(n)`` that is computed on demand, without storage if n is large.

How this works. A small permutation is stored as a table. A large permutation is computed by a Feistel network. The
network writes the index as two digits, and each round adds a hash of one digit to the other digit. All rounds are
invertible, so the network permutes all pairs of digits. The number of digit pairs slightly exceeds n. A result of n or
more goes through the network again until the result is below n (cycle walking).
"""

from __future__ import annotations

from math import isqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import PlanError
from aiostream_data.transforms.randomness import permutation, words

TABLE_ROWS: Final = 1 << 16
"""Maximum n for which the permutation is stored as a table. With a table, all permutations are equally likely."""

ROUNDS: Final = 6
MAX_ROWS: Final = 1 << 62

_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _32 = np.uint64(27), np.uint64(30), np.uint64(32)


class IndexPermutation:
    """Random permutation of ``range(n)`` that depends only on ``key`` and ``n``.

    Args:
        key: Random key from :func:`~aiostream_data.transforms.randomness.key_of`.
        n: Number of indices to permute, from 0 to 2**62.
        table_rows: Maximum n for which the permutation is stored as a table.
    """

    def __init__(self, key: np.uint64, n: int, table_rows: int = TABLE_ROWS) -> None:
        if not 0 <= n <= MAX_ROWS:
            raise PlanError(f"the number of rows to permute must be from 0 to {MAX_ROWS}, got {n}")
        self.n = n
        self._table = permutation(key, n) if n <= table_rows else None
        high = isqrt(max(0, n - 1)) + 1
        self._low = np.uint64(-(-n // high) or 1)
        self._bounds = (np.uint64(high), self._low)
        self._keys = words(key, 0, ROUNDS)

    def slice(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the row numbers at positions ``start`` (inclusive) to ``stop`` (exclusive), as int64."""
        if self._table is not None:
            return self._table[start:stop].copy()
        return self.at(np.arange(start, stop))

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row numbers at the given positions, as int64. Positions must be from 0 to n (exclusive)."""
        if self._table is not None:
            return self._table[places]
        rows = self._rounds(places.astype(np.uint64))
        over = np.flatnonzero(rows >= np.uint64(self.n))
        while len(over):
            rows[over] = self._rounds(rows[over])
            over = over[rows[over] >= np.uint64(self.n)]
        return rows.view(np.int64)

    def _rounds(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        digits = list(np.divmod(numbers, self._low))
        for number, key in enumerate(self._keys):
            changed = number % 2
            bound = self._bounds[changed]
            moved = digits[changed] + _hash_below(digits[1 - changed], key, bound)
            digits[changed] = np.minimum(moved, moved - bound)  # modulo bound: a negative difference wraps around
        high, low = digits
        high *= self._low
        high += low
        return np.asarray(high)


def _hash_below(digits: NDArray[np.uint64], key: np.uint64, bound: np.uint64) -> NDArray[np.uint64]:
    mixed = digits ^ key
    mixed ^= mixed >> _30
    mixed *= _MIX_1
    mixed ^= mixed >> _27
    mixed *= _MIX_2
    mixed >>= _32
    mixed *= bound
    mixed >>= _32
    return mixed
