"""How large parts are: by what the last ones took; and how far ahead of the reader they are asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data.rows.records import ByteRange
from aiostream_data.storage.part_size import LEAST, MOST, START, PartSize
from aiostream_data.storage.ranges import FIRST_NBYTES, NEXT_NBYTES, plan_ranges, range_sizes, shared_out
from aiostream_data.storage.read_ahead import LEAST as LEAST_RANGES
from aiostream_data.storage.read_ahead import MEMORY_SHARE, ReadAhead, most_ahead
from aiostream_data.storage.read_ahead import MOST as MOST_RANGES
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.wire_model import WireModel

MIB = 1 << 20


def after(parts: int, *, first_byte_s: float, bytes_per_s: float, size: PartSize | None = None) -> PartSize:
    """Return the size after so many parts that a line of this kind has carried."""
    size = size or PartSize()
    for _ in range(parts):
        size.took(size.nbytes, first_byte_s, size.nbytes / bytes_per_s)
    return size


@pytest.mark.parametrize(
    ("first_byte_s", "bytes_per_s", "nbytes"),
    [
        (0.001, 1e9, START),  # the same machine
        (0.0002, 1e9, LEAST),
        (0.020, 80e6, START),  # one connection to a store in the same region
        (0.050, 80e6, 8 * MIB),
        (0.100, 50e6, 16 * MIB),
        (0.200, 500e6, MOST),
        (0.0, 80e6, LEAST),
    ],
)
def test_the_wait_for_a_part_is_a_quarter_of_its_time_about(
    first_byte_s: float, bytes_per_s: float, nbytes: int
) -> None:
    size = after(20, first_byte_s=first_byte_s, bytes_per_s=bytes_per_s)
    assert size.nbytes == nbytes
    share = first_byte_s / (first_byte_s + nbytes / bytes_per_s)
    assert nbytes in (LEAST, MOST) or 0.1 <= share <= 1 / 3


def test_one_part_changes_the_size_by_one_step_and_a_steady_line_by_none() -> None:
    size = PartSize()
    seen = [after(1, first_byte_s=0.2, bytes_per_s=500e6, size=size).nbytes for _ in range(5)]
    assert seen == [min(MOST, 2**step * START) for step in range(1, 6)]
    steady = after(20, first_byte_s=0.020, bytes_per_s=80e6)
    sizes = {
        after(1, first_byte_s=0.020 + 0.004 * (turn % 3), bytes_per_s=80e6, size=steady).nbytes for turn in range(30)
    }
    assert sizes == {START}


def test_it_becomes_smaller_again_where_answers_begin_at_once() -> None:
    size = after(20, first_byte_s=0.2, bytes_per_s=500e6)
    assert after(40, first_byte_s=0.0001, bytes_per_s=500e6, size=size).nbytes == LEAST


def test_small_bodies_say_nothing_about_large_ones() -> None:
    size = PartSize()
    for _ in range(100):
        size.took(64 << 10, 0.2, 0.0)
        size.took(FIRST_NBYTES, 0.2, 0.0)
    assert size.nbytes == START


def test_a_wait_among_many_requests_says_little_about_the_line() -> None:
    alone, among_many = after(10, first_byte_s=0.002, bytes_per_s=80e6), after(10, first_byte_s=0.002, bytes_per_s=80e6)
    for _ in range(4):
        alone.took(alone.nbytes, 0.1, alone.nbytes / 80e6, in_flight=1)
        among_many.took(among_many.nbytes, 0.1, among_many.nbytes / 80e6, in_flight=64)
    assert among_many.nbytes < alone.nbytes


# -- and what the memory limit, the object and the first batch make of it


def test_the_first_range_stays_small_and_no_range_is_more_than_its_share_of_the_memory_limit() -> None:
    assert range_sizes(1 << 33, 1, among_many=False, part_nbytes=32 * MIB) == (FIRST_NBYTES, 32 * MIB)
    assert range_sizes(1 << 30, 1, among_many=False, part_nbytes=32 * MIB) == (FIRST_NBYTES, 16 * MIB)
    assert range_sizes(1 << 30, 16, among_many=False, part_nbytes=MIB) == (FIRST_NBYTES, MIB)
    assert range_sizes(1 << 30, 16, among_many=True, part_nbytes=32 * MIB)[1] == FIRST_NBYTES


def test_ranges_become_smaller_when_so_many_objects_are_open_that_they_would_fill_the_memory() -> None:
    sizes = [range_sizes(1 << 40, count, among_many=False, part_nbytes=32 * MIB)[1] for count in (1, 16, 17, 40, 500)]
    assert sizes == [32 * MIB, 32 * MIB, 16 * MIB, 8 * MIB, NEXT_NBYTES]
    assert range_sizes(1 << 40, 500, among_many=False, part_nbytes=2 * MIB)[1] == 2 * MIB


def test_ranges_on_their_way_are_a_quarter_of_what_is_left_of_an_object_or_as_small_as_usual() -> None:
    assert shared_out(16 * MIB, 1 << 30, at_once=16) == 16 * MIB
    assert shared_out(16 * MIB, 600 * MIB, at_once=16) == 8 * MIB
    assert shared_out(16 * MIB, 600 * MIB, at_once=4) == 16 * MIB
    assert shared_out(16 * MIB, 10 * MIB, at_once=16) == NEXT_NBYTES
    assert shared_out(MIB, 1 << 30, at_once=16) == MIB


def test_the_size_of_every_range_is_asked_for_when_it_is_planned() -> None:
    sizes = iter([10, 20, 40])
    left: list[int] = []

    def size(left_nbytes: int) -> int:
        left.append(left_nbytes)
        return next(sizes)

    assert list(plan_ranges(65, 5, size)) == [ByteRange(0, 5), ByteRange(5, 15), ByteRange(15, 35), ByteRange(35, 65)]
    assert left == [60, 50, 30]


def test_reading_ahead_doubles_until_a_range_was_there_and_then_grows_by_one() -> None:
    ahead = ReadAhead()
    seen = []
    for was_there in (False, False, True, False, False):
        ahead.took(64, was_there=was_there)
        seen.append(ahead.reads)
    assert seen == [2 * LEAST_RANGES, 4 * LEAST_RANGES, 4 * LEAST_RANGES, 4 * LEAST_RANGES + 1, 4 * LEAST_RANGES + 2]


@pytest.mark.parametrize("crowd", [1, 16, 1_000])
@pytest.mark.parametrize("limit", [8 << 20, 1 << 30, 1 << 40])
def test_ranges_on_their_way_of_all_sources_together_are_bounded_in_number_and_bytes(crowd: int, limit: int) -> None:
    size = max(range_sizes(limit, crowd, among_many=False))
    most = most_ahead(limit, crowd, size)
    ahead = ReadAhead()
    for _ in range(200):
        ahead.took(most, was_there=False)
    assert LEAST_RANGES <= ahead.reads <= MOST_RANGES
    assert ahead.reads == LEAST_RANGES or ahead.reads * crowd * size <= MEMORY_SHARE * limit


# -- what a store's answers took counts for all shards beside each other


def test_the_second_shard_begins_with_what_the_first_has_learned_and_another_prefix_with_nothing() -> None:
    async def main(options: dict[str, Any], url: str) -> list[int | None]:
        stores = StoreSet(options, asyncio.to_thread)
        try:
            shard = await stores.info(url)
            for number in range(3):
                await stores.read_into(shard, number * START, memoryview(bytearray(START)))
            others = ("s3://bucket/train/2", "s3://bucket/test/1", "file:///train/2", "memory://train/2")
            return [stores.part_nbytes(other) for other in others]
        finally:
            await stores.aclose()

    wire = WireModel(first_byte_s=0.1, bytes_per_s=50e6)
    with leaves_nothing(), fault_server("s3", where="process", wire=wire) as server:
        url = server.put("bucket/train/1", bytes(3 * START))
        learned, *others = asyncio.run(main(server.storage_options, url))
    assert learned is not None
    assert learned > START
    assert others == [START, None, None]
