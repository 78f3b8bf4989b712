"""Limits for the number of rows and the number of bytes in a chunk."""

from __future__ import annotations

CHUNK_ROWS = 16384
"""Maximum rows of a chunk that is read from a file, copied or shuffled: small enough for the CPU cache."""

HOP_ROWS = 65536
"""Maximum rows of a chunk of plain numbers, and of one call on a worker (hop) that runs user functions.

Long chunks reduce the overhead per row.
"""

CHUNK_NBYTES = 1 << 20
"""Target size of a chunk in bytes."""

MAX_CHUNK_NBYTES = 2 << 20
"""Maximum size in bytes of a chunk that is created by copying rows.

The memory budget does not count the bytes of a copy while rows are being copied.
"""


def rows_of_a_chunk(rows: int, nbytes: int) -> int:
    """Return the number of rows per chunk, at least 1, if ``rows`` rows use ``nbytes`` bytes in total."""
    return max(1, min(CHUNK_ROWS, MAX_CHUNK_NBYTES * rows // max(1, nbytes)))
