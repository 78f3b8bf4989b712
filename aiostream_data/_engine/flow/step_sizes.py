"""Compute sizes of blocks, records and hops of one open shard, from the memory limit and the number of open shards."""

from __future__ import annotations

from typing import Final

from aiostream_data._engine.flow.chunk_sizes import CHUNK_ROWS
from aiostream_data.formats.stream import BLOCK_NBYTES, HEADROOM_NBYTES

STEP_SHARE: Final = 16
"""Fraction (1/16) of the memory limit for the decompressed blocks of all open shards, with one block per shard."""

_LONG_COLUMN_NBYTES: Final = 1 << 20
"""Minimum size in bytes of a decompressed block whose columns may be long."""

LEAST_STEP_NBYTES: Final = 16 << 10
"""Minimum size of a decompressed block in bytes, regardless of the memory limit."""

RECORD_SHARE: Final = 8
"""Fraction (1/8) of the memory limit for the partially read records of all open shards together.

A record that exceeds its shard's share of this memory is read alone (see :meth:`.Budget.alone`).
"""

LEAST_RECORD_NBYTES: Final = 64 << 10
"""Size in bytes below which a record never counts as large."""

ROW_NBYTES: Final = 32
"""Bytes per row in the index and the row id together."""

HOP_STEPS: Final = 16
"""Maximum number of decompression steps in one hop (call on a worker)."""

HOP_SHARE: Final = 16
"""Fraction (1/16) of the memory limit for the output of the hops of all open shards.

Each hop runs at least one step.
"""


def block_nbytes(memory_limit: int, open_at_once: int) -> int:
    """Return the size in bytes of one decompressed block of a shard."""
    return max(LEAST_STEP_NBYTES, min(BLOCK_NBYTES, memory_limit // (STEP_SHARE * open_at_once)))


def headroom_nbytes(block: int) -> int:
    """Return the size of the scratch space in front of a decompressed block, in bytes."""
    return min(HEADROOM_NBYTES, block)


def rows_of_a_step(block: int) -> int:
    """Return the maximum rows of a column.

    This maximum limits the index of the column to about two blocks.
    """
    if block >= _LONG_COLUMN_NBYTES:  # enough memory for longer columns, which cost less per small record
        return 4 * CHUNK_ROWS
    return min(CHUNK_ROWS, max(LEAST_STEP_NBYTES, block) // ROW_NBYTES)


def large_record_nbytes(memory_limit: int, open_at_once: int) -> int:
    """Return the size in bytes from which a record counts as large and is read alone."""
    return max(LEAST_RECORD_NBYTES, memory_limit // (RECORD_SHARE * open_at_once))


def hop_nbytes(memory_limit: int, open_at_once: int, step: int) -> int:
    """Return the maximum output of one hop in bytes, if one decompression step produces ``step`` bytes."""
    return max(step, min(HOP_STEPS * step, memory_limit // (HOP_SHARE * open_at_once)))
