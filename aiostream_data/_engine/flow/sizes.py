"""Size of a chunk for the memory budget and for reports."""

from __future__ import annotations

from aiostream_data.rows.records import Chunk, Items, object_nbytes

_SAMPLE = 8

_QUICK_ROWS = 16
"""Number of sampled elements for an estimate of a list's size."""

_BOXED_NUMBER_NBYTES = 32


def chunk_nbytes(chunk: Chunk) -> int:
    """Return the size of a chunk in bytes. Lists of plain numbers are estimated, because a full scan is slow."""
    if isinstance(chunk, Items) and all(isinstance(value, (int, float)) for value in chunk.values[:_SAMPLE]):
        return len(chunk) * _BOXED_NUMBER_NBYTES
    return chunk.nbytes


def about_nbytes(chunk: Chunk) -> int:
    """Estimate the size of a chunk in bytes; for a long list, from a sample of its rows."""
    if not isinstance(chunk, Items) or len(chunk) <= _QUICK_ROWS:
        return chunk_nbytes(chunk)
    some = chunk.values[:: -(-len(chunk) // _QUICK_ROWS)]
    return sum(map(object_nbytes, some)) * len(chunk) // len(some) + chunk.ids.nbytes
