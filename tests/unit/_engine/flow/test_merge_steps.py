"""A merge sends rows that stay together as one chunk without a copy, and copies other rows in small chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data._engine.flow.channel import open_channel
from aiostream_data._engine.flow.chunk_sizes import (
    COPY_SHARE,
    HOP_ROWS,
    LOW_MEMORY_CHUNK_NBYTES,
    MAX_CHUNK_NBYTES,
    most_chunk_nbytes,
    rows_of_a_chunk,
)
from aiostream_data._engine.flow.merge import Merge, ReadyStreams, Stream
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.resume.merge_log import MergeLog
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.interleave import InterleaveOrder

ROW_NBYTES = 600_000


class Place:
    def at(self, given: int, book: Any) -> Any:
        return given

    def forget(self, given: int) -> None:
        pass


class Prepared:
    """Streams that are there when they are asked for."""

    is_ready = True

    def __init__(self, *streams: Stream | ReadyStreams) -> None:
        self.left = list(streams)

    async def next(self) -> Stream | ReadyStreams | None:
        return self.left.pop(0) if self.left else None

    async def again(self, state: Any, given: int) -> Stream | None:
        raise AssertionError("nothing is resumed")

    def ended(self) -> None:
        pass


class Outlet:
    def __init__(self, look: Callable[[int], None], memory_limit: int) -> None:
        self.budget = Budget(memory_limit)
        self.chunks: list[Chunk] = []
        self._look = look

    async def send(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self._look(sum(map(len, self.chunks)))

    async def send_work(self, work: Callable[..., Chunk], *args: Any, is_quick: bool = False) -> None:
        await self.send(work(*args))

    async def settled(self) -> None:
        pass

    async def discard_ahead(self) -> None:
        pass

    async def until_wanted(self) -> None:
        pass


def large_rows(source: int, rows: int) -> tuple[Chunk, np.ndarray[Any, Any]]:
    values = np.repeat(np.arange(10 * source, 10 * source + rows, dtype=np.uint8), ROW_NBYTES)
    starts = np.arange(rows) * ROW_NBYTES
    column = VarColumn(values, starts, np.full(rows, ROW_NBYTES), "bytes")
    return records_chunk(column, RowIds.run(source, 0, rows)), values


def merged(
    order: InterleaveOrder, *streams: Stream | ReadyStreams, most_nbytes: int = LOW_MEMORY_CHUNK_NBYTES
) -> list[Chunk]:
    log = MergeLog()
    book: Any = None

    def look(rows: int) -> None:
        assert log.at(rows, book) is not None, "a state can be saved after each chunk"

    outlet: Any = Outlet(look, memory_limit=COPY_SHARE * most_nbytes)
    merge = Merge(Prepared(*streams), order, log)
    asyncio.run(merge.run(outlet))
    chunks: list[Chunk] = outlet.chunks
    return chunks


def first_bytes(chunk: Chunk) -> list[int]:
    return [element[0] for element in chunk.elements()]


def stream_of(chunk: Chunk) -> Stream:
    sender, receiver = open_channel(2, 1 << 30)
    with sender:
        sender.put(chunk, chunk_nbytes(chunk))
    return Stream(receiver, Place())


def test_the_rows_of_a_group_of_shards_stay_one_chunk_without_a_copy() -> None:
    group, values = large_rows(0, 8)
    assert chunk_nbytes(group) > 2 * LOW_MEMORY_CHUNK_NBYTES
    (chunk,) = merged(InterleaveOrder(1, 1), ReadyStreams(group, np.ones(8, np.int64), [Place() for _ in range(8)]))
    assert isinstance(chunk, Columns)
    (column,) = chunk.leaves
    assert isinstance(column, VarColumn)
    assert np.shares_memory(column.values, values)
    assert first_bytes(chunk) == list(range(8))


def test_rows_that_take_turns_are_copied_in_chunks_of_limited_size() -> None:
    streams = [large_rows(source, 8)[0] for source in (0, 1)]
    chunks = merged(InterleaveOrder(2, 1), *map(stream_of, streams))
    assert max(map(chunk_nbytes, chunks)) <= LOW_MEMORY_CHUNK_NBYTES
    assert [row for chunk in chunks for row in first_bytes(chunk)] == [
        row + 10 * source for row in range(8) for source in (0, 1)
    ]


def test_rows_that_take_turns_are_copied_in_larger_chunks_with_more_memory() -> None:
    streams = [large_rows(source, 8)[0] for source in (0, 1)]
    most_nbytes = 2 * LOW_MEMORY_CHUNK_NBYTES
    chunks = merged(InterleaveOrder(2, 1), *map(stream_of, streams), most_nbytes=most_nbytes)
    assert LOW_MEMORY_CHUNK_NBYTES < max(map(chunk_nbytes, chunks)) <= most_nbytes


@pytest.mark.parametrize(
    ("memory_limit", "nbytes"), [(1 << 20, LOW_MEMORY_CHUNK_NBYTES), (1 << 30, 4 << 20), (1 << 40, MAX_CHUNK_NBYTES)]
)
def test_the_size_of_chunks_follows_the_memory_limit(memory_limit: int, nbytes: int) -> None:
    assert most_chunk_nbytes(memory_limit) == nbytes


@pytest.mark.parametrize("row_nbytes", [100, 1 << 10, 1 << 20])
def test_a_chunk_has_as_many_rows_as_fit_into_its_size(row_nbytes: int) -> None:
    rows = 1 << 20
    found = rows_of_a_chunk(rows, rows * row_nbytes, MAX_CHUNK_NBYTES)
    assert found == min(HOP_ROWS, MAX_CHUNK_NBYTES // row_nbytes)
