"""How much one open shard may make and hold, by what the memory limit leaves to each of those that are open."""

from __future__ import annotations

from typing import Final

from aiostream_data._engine.flow.chunk_sizes import CHUNK_ROWS
from aiostream_data.formats.stream import BLOCK_NBYTES, HEADROOM_NBYTES

STEP_SHARE: Final = 16
"""Decompressed blocks of one step of every open shard are at most this fraction (1/16) of the limit together, ..."""

LEAST_STEP_NBYTES: Final = 16 << 10
"""... unless they are as small as this."""

RECORD_SHARE: Final = 8
"""Records that are put together in every open shard are at most this fraction (1/8) of the limit together. A larger
one passes alone."""

LEAST_RECORD_NBYTES: Final = 64 << 10
"""A record is never large below this."""

INDEX_NBYTES: Final = 16
"""Bytes for each row of a variable column: where it starts, and its length."""

ROW_NBYTES: Final = 32
"""The same with the row's id."""

HOP_STEPS: Final = 16
"""Most steps of one hop."""

HOP_SHARE: Final = 16
"""Hops of every open shard make at most this fraction (1/16) of the limit together, or one step each."""


def block_nbytes(memory_limit: int, open_at_once: int) -> int:
    """Return how large a decompressed block of a shard is."""
    return max(LEAST_STEP_NBYTES, min(BLOCK_NBYTES, memory_limit // (STEP_SHARE * open_at_once)))


def headroom_nbytes(block: int) -> int:
    """Return how much scratch stands before a decompressed block."""
    return min(HEADROOM_NBYTES, block)


def rows_of_a_step(block: int) -> int:
    """Return how many rows a column has at most, so that its index is no larger than a block or two."""
    if block >= BLOCK_NBYTES:  # the limit leaves room: small records cost less in longer columns
        return 4 * CHUNK_ROWS
    return min(CHUNK_ROWS, max(LEAST_STEP_NBYTES, block) // ROW_NBYTES)


def large_record_nbytes(memory_limit: int, open_at_once: int) -> int:
    """Return from which size on a record passes alone."""
    return max(LEAST_RECORD_NBYTES, memory_limit // (RECORD_SHARE * open_at_once))


def hop_nbytes(memory_limit: int, open_at_once: int, step: int) -> int:
    """Return how much one hop may make, in bytes, when one step makes ``step``."""
    return max(step, min(HOP_STEPS * step, memory_limit // (HOP_SHARE * open_at_once)))
