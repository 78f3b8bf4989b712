"""Plan the byte ranges to request from an object. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aiostream_data.rows.records import ByteRange

FIRST_NBYTES = 1 << 20
"""Size of the first range of an object. It is small, so that the first record arrives early."""

NEXT_NBYTES = 4 << 20
"""Size of the following ranges if the store's latency is unknown: large enough to make the latency a small share.

If the latency is known, :class:`~.part_size.PartSize` provides the size."""

AMONG_MANY_NBYTES = 256 << 10
"""Size of the first range if rows of many objects are mixed, because the first output row waits for all objects.

The following ranges then have the size `FIRST_NBYTES`."""

LEAST_NBYTES = 64 << 10
"""Minimum size of a range, even if the memory limit leaves less for each open object."""

LIMIT_SHARE = 64
"""A range takes at most this fraction (1/64) of the memory limit, so that many shards can be open at once."""

OPEN_SHARE = 4
"""One range per open object may take at most this fraction (1/4) of the memory limit in total.

The rest is left because the output order may require a second range of each object."""

LEFT_SHARE = 4
"""Ranges exceed `NEXT_NBYTES` only if all ranges in flight are at most this fraction (1/4) of the object's rest."""


def range_sizes(
    memory_limit: int, open_at_once: int, among_many: bool, part_nbytes: int | None = None
) -> tuple[int, int]:
    """Return the sizes of the first range of an object and of all others, under a memory limit in bytes.

    Args:
        open_at_once: Number of objects read concurrently.
        among_many: True if rows of many objects are mixed.
        part_nbytes: Recommended range size for the store, or None if unknown.
    """
    first = AMONG_MANY_NBYTES if among_many else FIRST_NBYTES
    wanted = NEXT_NBYTES if part_nbytes is None else part_nbytes
    others = FIRST_NBYTES if among_many else max(FIRST_NBYTES, min(wanted, memory_limit // LIMIT_SHARE))
    most = max(LEAST_NBYTES, memory_limit // (OPEN_SHARE * open_at_once))
    return min(first, most), min(others, most)


def shared_out(size: int, left_nbytes: int, at_once: int) -> int:
    """Return a size for the next ranges, so that the ranges in flight are at most a quarter of the object's rest.

    Larger ranges would hold nearly the whole shard in memory and load its end over only a few connections.

    Args:
        size: Maximum size in bytes.
        left_nbytes: Bytes of the object that are not requested yet.
        at_once: Number of concurrent ranges.
    """
    share = left_nbytes // (LEFT_SHARE * at_once)
    return min(size, max(NEXT_NBYTES, 1 << max(0, share.bit_length() - 1)))


def plan_ranges(
    nbytes: int, first: int = FIRST_NBYTES, following: int | Callable[[int], int] = NEXT_NBYTES, start: int = 0
) -> Iterator[ByteRange]:
    """Yield ranges that cover bytes ``start`` to ``nbytes`` in order.

    A rest of at most half a range is joined to the preceding range. An empty object has no ranges.

    Args:
        following: Size of the other ranges, or a function that returns the size for a number of remaining bytes.
    """
    size = first
    while start < nbytes:
        stop = start + size
        if stop + size // 2 >= nbytes:
            stop = nbytes
        yield ByteRange(start, stop)
        start = stop
        if start < nbytes:
            size = following(nbytes - start) if callable(following) else following
