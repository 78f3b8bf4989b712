"""How many rows and bytes a chunk has."""

from __future__ import annotations

CHUNK_ROWS = 16384
"""Most rows of a chunk that is framed, gathered or shuffled: small enough to stay in the processor's cache."""

HOP_ROWS = 65536
"""Most rows of a chunk of plain numbers, and of one call of user code: what a hop costs is paid once for them."""

CHUNK_NBYTES = 1 << 20
"""Bytes a chunk aims at in steady state."""

MAX_CHUNK_NBYTES = 2 << 20
"""Bytes above which a chunk that has to be copied is made of fewer rows, as copies are not in the budget yet."""


def rows_of_a_chunk(rows: int, nbytes: int) -> int:
    """Return how many rows make a chunk, at least 1, when ``rows`` of them hold ``nbytes`` bytes."""
    return max(1, min(CHUNK_ROWS, MAX_CHUNK_NBYTES * rows // max(1, nbytes)))
