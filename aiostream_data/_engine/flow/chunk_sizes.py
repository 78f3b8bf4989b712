"""Limits of the rows and bytes of a chunk."""

from __future__ import annotations

CHUNK_ROWS = 16384
"""Maximum rows of a chunk that is framed, gathered or shuffled: small enough to stay in the processor's cache."""

HOP_ROWS = 65536
"""Maximum rows of a chunk of plain numbers, and of one hop of user code. Long chunks spread the cost of a hop."""

CHUNK_NBYTES = 1 << 20
"""Target size of a chunk in bytes."""

MAX_CHUNK_NBYTES = 2 << 20
"""Maximum bytes of a chunk that is copied. The budget does not include the copy in progress."""


def rows_of_a_chunk(rows: int, nbytes: int) -> int:
    """Return the number of rows per chunk, at least 1, if ``rows`` rows hold ``nbytes`` bytes."""
    return max(1, min(CHUNK_ROWS, MAX_CHUNK_NBYTES * rows // max(1, nbytes)))
