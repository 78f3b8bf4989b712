"""Compute the size of a chunk in bytes, for the memory budget and for reports."""

from __future__ import annotations

from aiostream_data.rows.object_nbytes import object_nbytes
from aiostream_data.rows.records import Chunk, Items

_SAMPLE = 8

_QUICK_ROWS = 16
"""Number of elements that are sampled to estimate the size of a list."""

_BOXED_NUMBER_NBYTES = 32


def chunk_nbytes(chunk: Chunk) -> int:
    """Return the size of a chunk of rows in bytes.

    The size of a list of plain numbers is estimated, because measuring every number is slow.
    """
    if isinstance(chunk, Items) and all(isinstance(value, (int, float)) for value in chunk.values[:_SAMPLE]):
        return len(chunk) * _BOXED_NUMBER_NBYTES
    return chunk.nbytes


def about_nbytes(chunk: Chunk) -> int:
    """Estimate the size of a chunk in bytes; for a long list, measure only a sample of its rows."""
    if not isinstance(chunk, Items) or len(chunk) <= _QUICK_ROWS:
        return chunk_nbytes(chunk)
    some = chunk.values[:: -(-len(chunk) // _QUICK_ROWS)]
    return sum(map(object_nbytes, some)) * len(chunk) // len(some) + chunk.ids.nbytes
