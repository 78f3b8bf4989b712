"""Plan the byte ranges to request from an object. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat

from aiostream_data.rows.records import ByteRange

FIRST_NBYTES = 1 << 20
"""Size in bytes of the first range of an object. The size is small, so that the first record arrives early."""

NEXT_NBYTES = 4 << 20
"""Usual size of later ranges. Large ranges reduce the share of time lost to latency.

If the latency is known, :class:`~.part_size.PartSize` provides the size."""

EARLY_RANGES = 8
"""At the start of a run, number of ranges of an object that keep the size `NEXT_NBYTES` before ranges grow further."""

NEAR_NBYTES = 16 << 20
"""Size of later ranges of local files and of objects in memory. A range costs a millisecond of Python in addition to
its bytes: with rows of 1 MiB, ranges of 4 MiB are half as fast."""

NEAR_NBYTES_AHEAD = 8 << 20
"""Maximum size of all ranges of near objects in flight together. They wait for no response, and splitting bytes takes
longer if they have left the cache of the CPU."""

AMONG_MANY_NBYTES = 256 << 10
"""First range size if rows of many objects are mixed. The size is small, because the first output row requires a range
of every object.

If rows of many objects are mixed, all later ranges have the size `FIRST_NBYTES`."""

LEAST_NBYTES = 4 << 10
"""Minimum size of a range in bytes, even if the memory limit allows less per open object."""

LIMIT_SHARE = 64
"""A range uses at most this fraction (1/64) of the memory limit, so that many shards can be open at the same time."""

OPEN_SHARE = 4
"""If one range per open object is in memory, all ranges use at most this fraction (1/4) of the memory limit.

The rest of the limit stays free, because the output order may require a second range of each object."""

OPEN_PARTS = 16
"""Number of open objects up to which their ranges have the recommended size.

With more, ranges are smaller by the same factor, because each open object has about four ranges in memory. They do not
become smaller than `NEXT_NBYTES` for this reason."""

LEFT_SHARE = 4
"""Ranges are larger than `NEXT_NBYTES` only if all ranges in flight together are at most 1/4 of the object's remaining
bytes."""


def range_sizes(
    memory_limit: int, open_at_once: int, among_many: bool, part_nbytes: int | None = None
) -> tuple[int, int]:
    """Return the size of the first range and the size of all later ranges of an object, within the memory limit.

    Args:
        open_at_once: Number of objects read concurrently.
        among_many: True if rows of many objects are mixed.
        part_nbytes: Recommended range size for the store, or None if the object is near.
    """
    first = AMONG_MANY_NBYTES if among_many else FIRST_NBYTES
    wanted = NEAR_NBYTES if part_nbytes is None else part_nbytes
    wanted = min(wanted, max(NEXT_NBYTES, _power_of_two(OPEN_PARTS * wanted // open_at_once)))
    others = FIRST_NBYTES if among_many else max(FIRST_NBYTES, min(wanted, memory_limit // LIMIT_SHARE))
    most = max(LEAST_NBYTES, memory_limit // (OPEN_SHARE * open_at_once))
    return min(first, most), min(others, most)


def growing_sizes(first: int) -> Iterator[int]:
    """Yield range sizes in bytes, each twice its predecessor, without end. The first size is twice ``first``.

    At the start of a run, the consumer waits for the first rows. All ranges share the bandwidth, so large ranges would
    delay these rows. So once a size reaches `NEXT_NBYTES`, `EARLY_RANGES` more ranges keep it.
    """
    size = first
    while size < NEXT_NBYTES:
        size *= 2
        yield size
    yield from repeat(size, EARLY_RANGES)
    while True:
        size *= 2
        yield size


def shared_out(size: int, left_nbytes: int, at_once: int) -> int:
    """Return a size for the next ranges, so that ranges in flight are at most a quarter of the remaining bytes.

    With larger ranges, nearly the complete shard would be in memory, and few connections would load the end of the
    shard.

    Args:
        size: Maximum size of a range in bytes.
        left_nbytes: Bytes of the object that are not requested yet.
        at_once: Number of concurrent ranges.
    """
    share = left_nbytes // (LEFT_SHARE * at_once)
    return min(size, max(NEXT_NBYTES, _power_of_two(share)))


def plan_ranges(
    nbytes: int, first: int = FIRST_NBYTES, following: int | Callable[[int], int] = NEXT_NBYTES, start: int = 0
) -> Iterator[ByteRange]:
    """Yield consecutive byte ranges from ``start`` to ``nbytes``.

    Remaining bytes of at most half a range are added to the preceding range. An empty object has no ranges.

    Args:
        following: Size of all ranges after the first, or a function that computes the size from the number of remaining
            bytes.
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


def _power_of_two(nbytes: int) -> int:
    """Return the largest power of two that is at most ``nbytes``; 1 for less. Blocks of equal sizes can be reused."""
    return 1 << max(0, nbytes.bit_length() - 1)
