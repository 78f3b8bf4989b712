"""Sizes of blocks, records and hops of one open shard, from the memory limit and the number of open shards."""

from __future__ import annotations

from typing import Final

from aiostream_data._engine.flow.chunk_sizes import CHUNK_ROWS
from aiostream_data.formats.stream import BLOCK_NBYTES, HEADROOM_NBYTES

STEP_SHARE: Final = 16
"""The decompressed blocks of one step, over all open shards, may take this fraction (1/16) of the memory limit."""

LEAST_STEP_NBYTES: Final = 16 << 10
"""Minimum size of a decompressed block in bytes, under any memory limit."""

RECORD_SHARE: Final = 8
"""Partial records of all open shards may take this fraction (1/8) of the limit. A larger record passes alone."""

LEAST_RECORD_NBYTES: Final = 64 << 10
"""Records below this size in bytes never have to pass alone."""

INDEX_NBYTES: Final = 16
"""Bytes of index per row of a variable-length column: the offset and the length."""

ROW_NBYTES: Final = 32
"""Bytes of index and row id per row."""

HOP_STEPS: Final = 16
"""Maximum number of steps of one hop."""

HOP_SHARE: Final = 16
"""The hops of all open shards may produce this fraction (1/16) of the limit, but at least one step each."""


def block_nbytes(memory_limit: int, open_at_once: int) -> int:
    """Return the size in bytes of a decompressed block of a shard."""
    return max(LEAST_STEP_NBYTES, min(BLOCK_NBYTES, memory_limit // (STEP_SHARE * open_at_once)))


def headroom_nbytes(block: int) -> int:
    """Return the bytes of scratch space in front of a decompressed block."""
    return min(HEADROOM_NBYTES, block)


def rows_of_a_step(block: int) -> int:
    """Return the maximum rows of a column, so that its index is at most about two blocks large."""
    if block >= BLOCK_NBYTES:  # enough memory for longer columns, which cost less per small record
        return 4 * CHUNK_ROWS
    return min(CHUNK_ROWS, max(LEAST_STEP_NBYTES, block) // ROW_NBYTES)


def large_record_nbytes(memory_limit: int, open_at_once: int) -> int:
    """Return the size in bytes from which a record passes alone."""
    return max(LEAST_RECORD_NBYTES, memory_limit // (RECORD_SHARE * open_at_once))


def hop_nbytes(memory_limit: int, open_at_once: int, step: int) -> int:
    """Return the maximum output of one hop in bytes, if one step produces ``step`` bytes."""
    return max(step, min(HOP_STEPS * step, memory_limit // (HOP_SHARE * open_at_once)))
