"""Limits for the number of rows and the number of bytes in a chunk."""

from __future__ import annotations

from aiostream_data.rows.columns import LARGE_ROW_NBYTES

CHUNK_ROWS = 16384
"""Maximum number of rows in a chunk, except in chunks of small rows. See :data:`HOP_ROWS`."""

HOP_ROWS = 65536
"""Maximum rows of a chunk of small rows, and of one call on a worker (hop) that runs user functions.

Each chunk costs about a millisecond of Python, so long chunks reduce the overhead per row.
"""

CHUNK_NBYTES = 1 << 20
"""Target size of a chunk in bytes."""

MAX_CHUNK_NBYTES = 2 << 20
"""Maximum size in bytes of a chunk that is created by copying rows.

The memory budget does not count the bytes of a copy while rows are being copied.
"""

LARGE_ROWS_NBYTES = 8 << 20
"""Maximum size in bytes of a chunk of large rows. A chunk costs a call on a worker, and a millisecond of Python."""

COPY_SHARE = 256
"""Minimum ratio of the memory limit to the size of a chunk of large rows, because the budget does not count copies."""


def large_rows_nbytes(memory_limit: int) -> int:
    """Return the maximum size in bytes of a copied chunk of large rows."""
    return max(MAX_CHUNK_NBYTES, min(LARGE_ROWS_NBYTES, memory_limit // COPY_SHARE))


def rows_of_a_chunk(rows: int, nbytes: int, large_nbytes: int = MAX_CHUNK_NBYTES) -> int:
    """Return the number of rows per chunk, at least 1, if ``rows`` rows use ``nbytes`` bytes in total.

    Args:
        large_nbytes: Maximum size in bytes of a chunk of large rows.
    """
    most = large_nbytes if nbytes >= LARGE_ROW_NBYTES * rows else MAX_CHUNK_NBYTES
    return max(1, min(HOP_ROWS, most * rows // max(1, nbytes)))


def rows_of_a_slice(rows: int, nbytes: int) -> int:
    """Return the number of rows per chunk if ``rows`` rows of ``nbytes`` bytes in total are sliced, not copied."""
    return max(CHUNK_ROWS, min(HOP_ROWS, MAX_CHUNK_NBYTES * rows // max(1, nbytes)))
