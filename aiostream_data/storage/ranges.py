"""Plan which byte ranges to ask for; pure, so that the choice is tested without a store."""

from __future__ import annotations

from collections.abc import Iterator

from aiostream_data.records import ByteRange

FIRST_NBYTES = 1 << 20
"""The first range of an object is small, so that its first record is soon there."""

NEXT_NBYTES = 4 << 20
"""Size of the following ranges: large enough that a request's latency is small beside its body."""

AMONG_MANY_NBYTES = 256 << 10
"""Size of the first range where rows of many objects are mixed: the first row that goes on waits for all of them.
The following ones are as large as a first range usually is."""

LIMIT_SHARE = 64
"""A range takes at most this fraction (1/64) of the memory limit, so that many shards can be open at once."""


def following_nbytes(memory_limit: int) -> int:
    """Return the size of all ranges but the first, under a memory limit in bytes."""
    return max(FIRST_NBYTES, min(NEXT_NBYTES, memory_limit // LIMIT_SHARE))


def plan_ranges(
    nbytes: int, first: int = FIRST_NBYTES, following: int = NEXT_NBYTES, start: int = 0
) -> Iterator[ByteRange]:
    """Yield ranges that cover bytes ``start`` to ``nbytes`` in order, the first of at most ``first`` bytes.

    A rest of less than half a range is joined to the range before it. An empty object has no range.
    """
    size = first
    while start < nbytes:
        stop = start + size
        if stop + size // 2 >= nbytes:
            stop = nbytes
        yield ByteRange(start, stop)
        start, size = stop, following
