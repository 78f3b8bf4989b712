"""Limits for the number of rows and the number of bytes in a chunk."""

from __future__ import annotations

CHUNK_ROWS = 16384
"""Maximum number of rows in a chunk, except in chunks of small rows. See :data:`HOP_ROWS`."""

HOP_ROWS = 65536
"""Maximum rows of a chunk of small rows, and of one call on a worker (hop) that runs user functions.

Each chunk costs about a millisecond of Python, so long chunks reduce the overhead per row.
"""

CHUNK_NBYTES = 1 << 20
"""Target size of a chunk in bytes."""

LOW_MEMORY_CHUNK_NBYTES = 2 << 20
"""Maximum size in bytes of a chunk under a small memory limit. See :func:`most_chunk_nbytes`."""

MAX_CHUNK_NBYTES = 8 << 20
"""Maximum size in bytes of a chunk. A chunk costs several calls on workers, and about a millisecond of Python."""

COPY_SHARE = 256
"""Minimum ratio of the memory limit to the size of a large chunk.

The memory budget does not count the bytes of a copy while rows are being copied.
"""


def most_chunk_nbytes(memory_limit: int) -> int:
    """Return the maximum size in bytes of a chunk, except of a single row that is larger."""
    return max(LOW_MEMORY_CHUNK_NBYTES, min(MAX_CHUNK_NBYTES, memory_limit // COPY_SHARE))


def rows_of_a_chunk(rows: int, nbytes: int, most_nbytes: int = LOW_MEMORY_CHUNK_NBYTES) -> int:
    """Return the number of rows per chunk, at least 1, if ``rows`` rows use ``nbytes`` bytes in total.

    Args:
        most_nbytes: Maximum size of a chunk in bytes; see :func:`most_chunk_nbytes`.
    """
    return max(1, min(HOP_ROWS, most_nbytes * rows // max(1, nbytes)))


def rows_of_a_slice(rows: int, nbytes: int, most_nbytes: int = LOW_MEMORY_CHUNK_NBYTES) -> int:
    """Return the number of rows per chunk if ``rows`` rows of ``nbytes`` bytes in total are sliced, not copied."""
    return max(CHUNK_ROWS, min(HOP_ROWS, most_nbytes * rows // max(1, nbytes)))
