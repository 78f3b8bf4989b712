"""What a chunk is counted as, against the budget and in reports."""

from __future__ import annotations

from aiostream_data.records import Chunk, Items

_SAMPLE = 8
_BOXED_NUMBER_NBYTES = 32


def chunk_nbytes(chunk: Chunk) -> int:
    """Return what a chunk holds; lists of plain numbers are estimated, as looking at each would cost more."""
    if isinstance(chunk, Items) and all(isinstance(value, (int, float)) for value in chunk.values[:_SAMPLE]):
        return len(chunk) * _BOXED_NUMBER_NBYTES
    return chunk.nbytes
