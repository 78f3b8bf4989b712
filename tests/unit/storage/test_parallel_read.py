"""A large object that is read as a whole comes by several requests at once, each byte to its place, whatever fails."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.errors import ObjectNotFoundError, StorageError
from aiostream_data.rows.records import ByteRange, ShardRef
from aiostream_data.storage import memory
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.parallel_read import AT_ONCE, parts_of, read_parts
from aiostream_data.storage.ranges import plan_ranges
from aiostream_data.storage.retry import RetryingStore, RetryPolicy
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.fault_store import FaultStore
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.latency_store import LatencyStore

MIB = 1 << 20
URL = "faulty://whole"
CONTENT = random.Random(3).randbytes(3_000)


@pytest.fixture(autouse=True)
def _objects(memory_objects: None) -> None:
    memory.put("memory://whole", CONTENT)


def test_small_objects_and_those_of_no_known_version_are_one_request() -> None:
    known, unknown = ShardRef("s3://b/x", version="1"), ShardRef("s3://b/x")
    assert parts_of(known, 0, 4 * MIB) == []
    assert parts_of(known, 5 * MIB, 4 * MIB) == [ByteRange(0, 5 * MIB)]
    assert parts_of(unknown, 50 * MIB, 4 * MIB) == [ByteRange(0, 50 * MIB)]
    assert parts_of(known, 50 * MIB, None) == [ByteRange(0, 50 * MIB)]
    parts = parts_of(known, 50 * MIB, 4 * MIB)
    assert [part.start for part in parts] == [4 * number * MIB for number in range(12)]
    assert parts[-1].stop == 50 * MIB
    assert parts_of(known, 50 * MIB, 32 * MIB) == parts
    assert len(parts_of(known, 5 * MIB, MIB)) == 5


FAULTS = st.sampled_from(
    [
        Fault(status=503),
        Fault(status=500),
        Fault(reset_at="start"),
        Fault(reset_at="middle"),
        Fault(truncate_at="last"),
        Fault(end_early_at="first"),
        Fault(stall_at="middle", stall_s=0.001),
        Fault(delay_s=0.001),
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(1, 3_000),
    st.integers(1, 700),
    st.integers(1, 9),
    st.lists(st.tuples(FAULTS, st.integers(0, 12)), max_size=8),
)
def test_under_drawn_faults_every_byte_is_in_its_place(
    nbytes: int, part_nbytes: int, at_once: int, faults: list[tuple[Fault, int]]
) -> None:
    async def case() -> None:
        store = FaultStore(
            MemoryStore(), [Rule(fault, kind="get", every=every + 1, times=2) for fault, every in faults]
        )
        retrying = RetryingStore(store, RetryPolicy(base_s=0.0))
        shard, buffer = await retrying.info(URL), bytearray(nbytes)
        parts = list(plan_ranges(nbytes, part_nbytes, part_nbytes))
        await read_parts(retrying, shard, parts, memoryview(buffer), at_once)
        assert buffer == CONTENT[:nbytes]

    asyncio.run(case())


def test_no_more_parts_are_on_their_way_than_allowed_and_they_begin_in_order() -> None:
    async def case(at_once: int) -> LatencyStore:
        store = LatencyStore(MemoryStore(), latency_s=0.002)
        shard = await store.info("slow://whole")
        await read_parts(store, shard, list(plan_ranges(3_000, 100, 100)), memoryview(bytearray(3_000)), at_once)
        return store

    for at_once in (1, 4, AT_ONCE):
        store = asyncio.run(case(at_once))
        assert store.max_in_flight == at_once
        assert [start for _, start, _ in store.ranges] == list(range(0, 3_000, 100))


def test_the_first_part_that_fails_ends_all_and_nothing_is_written_later() -> None:
    class Failing(MemoryStore):
        writing = 0

        async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
            if start == 200:
                raise ObjectNotFoundError(shard.url, "gone")
            Failing.writing += 1
            try:
                await asyncio.Event().wait()
            finally:
                Failing.writing -= 1

    async def case() -> None:
        parts = list(plan_ranges(3_000, 100, 100))
        with pytest.raises(StorageError, match="gone"):
            await read_parts(Failing(), ShardRef("memory://whole"), parts, memoryview(bytearray(3_000)))
        assert Failing.writing == 0

    asyncio.run(case())


def test_a_data_set_of_large_files_asks_for_several_parts_of_each_and_one_of_the_small() -> None:
    large, small = random.Random(5).randbytes(11 * MIB), b"small"
    with leaves_nothing(), fault_server("s3") as server:
        urls = [server.put("bucket/large", large), server.put("bucket/small", small)]
        with Dataset.from_files(urls, storage_options=server.storage_options).open() as loader:
            read = [element["data"] for element in loader]
        assert read[0] == large
        assert read[1:] == [small]
        seen = [(entry.name, entry.start, entry.stop) for entry in server.log() if entry.kind == "get"]
    assert sum(name == "bucket/small" for name, _, _ in seen) == 1
    of_large = sorted((start, stop) for name, start, stop in seen if name == "bucket/large")
    assert of_large == [(0, 4 * MIB), (4 * MIB, 8 * MIB), (8 * MIB, 11 * MIB)]
