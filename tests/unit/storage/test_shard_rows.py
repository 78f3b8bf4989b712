"""Single records of a shard are read by few requests, and where they were not expected they are found all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.resume.origins import Hint
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.shard_rows import REQUESTS_AT_ONCE, ShardRows, probable_range, recalled_nbytes
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import walk
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import ByteRange
from aiostream_data.storage import memory
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.ranges import LEAST_NBYTES, NEXT_NBYTES
from aiostream_data.testing.latency_store import LatencyStore

ROWS, MIB = 4_000, 1 << 20
SIZES = [1_000 + 3_000 * (row % 7 == 0) for row in range(ROWS)]
OFFSETS = np.concatenate([[0], np.cumsum([size + 1 for size in SIZES])])
URL = "memory://rows.txt"


@pytest.fixture(autouse=True)
def _shard(memory_objects: None) -> None:
    memory.put(URL, b"".join(f"{row:0{size}}\n".encode() for row, size in enumerate(SIZES)))


async def _hop(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def rows_of(wanted: list[int], known: list[int], most_nbytes: int = NEXT_NBYTES) -> tuple[list[int], LatencyStore]:
    """Return the records of these numbers, as numbers, and the store that they were asked of."""
    [node] = [each for each in walk(Dataset.from_text(URL).plan) if isinstance(each, ReadFiles)]
    offsets = ShardOffsets()
    for row in known:
        offsets.learn(0, row, int(OFFSETS[row]))

    async def case() -> tuple[list[int], LatencyStore]:
        store = LatencyStore(MemoryStore(), latency_s=0.001)
        shard = await store.info("slow://rows.txt")
        stores: Any = store
        rows = ShardRows(node, shard, 0, 0, stores, offsets, _hop, most_nbytes, Budget(1 << 30))
        chunk = await rows.read(np.array(wanted, np.int64))
        return [int(element) for element in chunk.elements()], store

    return asyncio.run(case())


def test_records_near_each_other_are_one_request_though_each_is_looked_for_from_a_place_of_its_own() -> None:
    wanted = list(range(1_000, 1_600, 3))
    read, store = rows_of(wanted, known=list(range(0, ROWS, 50)))
    assert read == wanted
    assert len(store.ranges) == 1
    [(_, start, stop)] = store.ranges
    assert (start, stop - start) <= (OFFSETS[1_000], OFFSETS[1_650] - OFFSETS[1_000])


def test_records_far_from_each_other_are_read_a_few_at_a_time_and_little_more_than_they() -> None:
    wanted = list(range(0, ROWS, 500))
    read, store = rows_of(wanted, known=list(range(0, ROWS, 20)))
    assert read == wanted
    assert len(store.ranges) == len(wanted)
    assert store.max_in_flight == REQUESTS_AT_ONCE
    assert sum(stop - start for _, start, stop in store.ranges) < 2 * len(wanted) * LEAST_NBYTES


@pytest.mark.parametrize("most_nbytes", [LEAST_NBYTES, NEXT_NBYTES])
@pytest.mark.parametrize("known", [[], [0, ROWS - 1], [7, 14, 3_001], list(range(0, ROWS, 333))])
def test_whatever_is_known_the_records_are_those_that_were_asked_for(known: list[int], most_nbytes: int) -> None:
    for wanted in ([0], [ROWS - 1], [6, 7, 8, 3_000, 3_001, ROWS - 1], list(range(5, ROWS, 97))):
        assert rows_of(wanted, known, most_nbytes)[0] == wanted


def test_a_record_that_the_shard_has_not_is_told() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        rows_of([3, ROWS], known=[0, 1_000])
    assert caught.group_contains(StateMismatchError, match=f"has {ROWS} records, but record {ROWS} was requested")


def test_where_records_probably_are() -> None:
    start, behind = Hint(0, 10, 1_000_000), Hint(0, 110, 11_000_000)
    assert probable_range(start, 19, behind, 1 << 30, MIB) == ByteRange(1_000_000, 2_250_000 + LEAST_NBYTES)
    assert probable_range(start, 109, behind, 1 << 30, MIB) == ByteRange(1_000_000, 11_000_000)
    assert probable_range(start, 19, None, 1 << 30, MIB) == ByteRange(1_000_000, 1_000_000 + MIB)
    assert probable_range(start, 19, None, 1_500_000, MIB) == ByteRange(1_000_000, 1_500_000)
    assert probable_range(start, 19, None, 500, MIB) == ByteRange(1_000_000, 1_000_000)


def test_what_is_asked_for_at_once_is_a_quarter_of_the_limit() -> None:
    for limit in (1 << 26, 1 << 28, 1 << 36):
        most = recalled_nbytes(limit, 32)
        assert most in (LEAST_NBYTES, NEXT_NBYTES) or 4 * 32 * REQUESTS_AT_ONCE * most <= limit
