"""Plan which byte ranges to ask for; pure, so that the choice is tested without a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aiostream_data.rows.records import ByteRange

FIRST_NBYTES = 1 << 20
"""The first range of an object is small, so that its first record is soon there."""

NEXT_NBYTES = 4 << 20
"""Size of the following ranges where nothing is known of the store: large enough that a request's latency is small
beside its body. Where it is known what answers take, :class:`~.part_size.PartSize` says how large."""

AMONG_MANY_NBYTES = 256 << 10
"""Size of the first range where rows of many objects are mixed: the first row that goes on waits for all of them.
The following ones are as large as a first range usually is."""

LEAST_NBYTES = 64 << 10
"""Ranges are no smaller than this, however little memory there is for each object that is open."""

LIMIT_SHARE = 64
"""A range takes at most this fraction (1/64) of the memory limit, so that many shards can be open at once; ..."""

OPEN_SHARE = 4
"""... and one range of each that is open at most this (1/4) together: the order may wait for a second one of each."""


LEFT_SHARE = 4
"""Ranges become larger than usual only where those on their way are at most this fraction (1/4) of an object's rest."""


def range_sizes(
    memory_limit: int, open_at_once: int, among_many: bool, part_nbytes: int | None = None
) -> tuple[int, int]:
    """Return the sizes of the first range of an object and of all others, under a memory limit in bytes.

    Args:
        open_at_once: Objects that are read at the same time.
        among_many: Rows of many objects are mixed.
        part_nbytes: How large ranges should be by what the store's last answers took; None where that is unknown.
    """
    first = AMONG_MANY_NBYTES if among_many else FIRST_NBYTES
    wanted = NEXT_NBYTES if part_nbytes is None else part_nbytes
    others = FIRST_NBYTES if among_many else max(FIRST_NBYTES, min(wanted, memory_limit // LIMIT_SHARE))
    most = max(LEAST_NBYTES, memory_limit // (OPEN_SHARE * open_at_once))
    return min(first, most), min(others, most)


def shared_out(size: int, left_nbytes: int, at_once: int) -> int:
    """Return a size for the next ranges of an object such that those on their way at once are a quarter of its rest.

    Else nearly all of a shard would be in memory, and its end would come over a few connections.

    Args:
        size: As large as they should be; they are no larger.
        left_nbytes: Of the object.
        at_once: Ranges on their way together.
    """
    share = left_nbytes // (LEFT_SHARE * at_once)
    return min(size, max(NEXT_NBYTES, 1 << max(0, share.bit_length() - 1)))


def plan_ranges(
    nbytes: int, first: int = FIRST_NBYTES, following: int | Callable[[int], int] = NEXT_NBYTES, start: int = 0
) -> Iterator[ByteRange]:
    """Yield ranges that cover bytes ``start`` to ``nbytes`` in order, the first of at most ``first`` bytes.

    A rest of less than half a range is joined to the range before it. An empty object has no range.

    Args:
        following: Size of the other ranges; where it is a function, it is asked with each, and given the bytes left.
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
