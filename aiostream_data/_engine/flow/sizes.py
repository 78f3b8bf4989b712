"""What a chunk is counted as, against the budget and in reports."""

from __future__ import annotations

from aiostream_data.rows.records import Chunk, Items, object_nbytes

_SAMPLE = 8

_QUICK_ROWS = 16
"""Elements of a list that are looked at where an estimate will do."""

_BOXED_NUMBER_NBYTES = 32


def chunk_nbytes(chunk: Chunk) -> int:
    """Return what a chunk holds; lists of plain numbers are estimated, as looking at each would cost more."""
    if isinstance(chunk, Items) and all(isinstance(value, (int, float)) for value in chunk.values[:_SAMPLE]):
        return len(chunk) * _BOXED_NUMBER_NBYTES
    return chunk.nbytes


def about_nbytes(chunk: Chunk) -> int:
    """Return what a chunk holds, from some of its rows where it is a list."""
    if not isinstance(chunk, Items) or len(chunk) <= _QUICK_ROWS:
        return chunk_nbytes(chunk)
    some = chunk.values[:: -(-len(chunk) // _QUICK_ROWS)]
    return sum(map(object_nbytes, some)) * len(chunk) // len(some) + chunk.ids.nbytes
