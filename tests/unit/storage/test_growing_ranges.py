"""Sizes of the ranges that are requested while the consumer waits for the first rows."""

from __future__ import annotations

from itertools import islice

from aiostream_data.storage.ranges import (
    AMONG_MANY_NBYTES,
    EARLY_RANGES,
    FIRST_NBYTES,
    NEXT_NBYTES,
    growing_sizes,
    plan_ranges,
)

MIB = 1 << 20


def test_ranges_grow_to_a_size_that_delays_no_first_row_and_later_without_end() -> None:
    sizes = list(islice(growing_sizes(FIRST_NBYTES), EARLY_RANGES + 5))
    assert [size // MIB for size in sizes] == [2, 4, *[4] * EARLY_RANGES, 8, 16, 32]


def test_the_smallest_first_ranges_grow_in_the_same_way() -> None:
    sizes = list(islice(growing_sizes(AMONG_MANY_NBYTES), 6))
    assert [size // 1024 for size in sizes] == [512, 1024, 2048, 4096, 4096, 4096]


def test_the_first_rows_of_a_new_run_share_the_bandwidth_with_small_ranges_only() -> None:
    grown = growing_sizes(FIRST_NBYTES)
    planned = [part.nbytes for part in plan_ranges(64 * MIB, FIRST_NBYTES, lambda _: next(grown))]
    assert sum(planned) == 64 * MIB
    assert max(planned[: EARLY_RANGES + 2]) == NEXT_NBYTES
    assert max(planned) > NEXT_NBYTES
