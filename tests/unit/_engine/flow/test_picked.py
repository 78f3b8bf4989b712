"""Rows that were chosen and wait to be copied."""

from __future__ import annotations

import asyncio
from collections import deque

import numpy as np
import pytest

from aiostream_data._engine.flow.channel import EndOfStream, open_channel
from aiostream_data._engine.flow.chunk_sizes import HOP_ROWS
from aiostream_data._engine.flow.merge import Merge, Stream
from aiostream_data._engine.flow.pending_rows import PickedRows, gathered
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.merge_log import MergeLog
from aiostream_data._engine.resume.position import State
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.transforms.interleave import NOTHING, InterleaveOrder, MergeStep

ROWS = 6_000
STREAMS = 3


def numbers(first: int, count: int) -> Columns:
    return Columns(LEAF, (np.arange(first, first + count),), RowIds.run(0, first, count))


def step(which: list[int], rows: list[int]) -> MergeStep:
    return MergeStep(np.array(which, np.int32), np.array(rows, np.int64), NOTHING)


def test_steps_over_changing_chunks_are_copied_in_order() -> None:
    picked = PickedRows()
    picked.add(step([2, 0, 2], [0, 0, 1]), {0: numbers(0, 1), 2: numbers(20, 2)})
    picked.add(step([0, 2], [1, 0]), {0: numbers(5, 2), 2: numbers(30, 1)})
    assert len(picked) == 5
    assert gathered(picked.taken()).elements() == [20, 0, 21, 6, 30]
    assert len(picked) == 0


def test_one_unbroken_run_is_a_slice_and_no_copy() -> None:
    chunk = numbers(0, 10)
    picked = PickedRows()
    picked.add(step([1, 1], [3, 4]), {1: chunk})
    picked.add(step([1], [5]), {1: chunk})
    run = gathered(picked.taken())
    assert isinstance(run, Columns)
    assert run.elements() == [3, 4, 5]
    assert np.shares_memory(np.asarray(run.leaves[0]), np.asarray(chunk.leaves[0]))


class NoPlace:
    """The place of a stream that nobody asks for."""

    def at(self, given: int, book: BookWriter) -> State:
        raise NotImplementedError

    def forget(self, given: int) -> None:
        raise NotImplementedError


class ReadyStreams:
    """Streams whose chunks are all there."""

    def __init__(self, streams: list[list[Chunk]]) -> None:
        self._streams: deque[Stream] = deque()
        for chunks in streams:
            sender, receiver = open_channel(max(1, len(chunks)), 1 << 30)
            with sender:
                for chunk in chunks:
                    sender.put(chunk)
            self._streams.append(Stream(receiver, NoPlace()))

    is_ready = False

    async def next(self) -> Stream | None:
        return self._streams.popleft() if self._streams else None

    async def again(self, state: State, given: int) -> Stream:
        raise NotImplementedError

    def ended(self) -> None:
        pass


async def merged(streams: list[list[Chunk]], *, works_ahead: bool) -> list[Chunk]:
    sender, receiver = open_channel(1_000, 1 << 30)
    pool = ThreadExecutor(1, "merge")
    try:
        with Outlet(sender, StageCounters("merge"), Budget(1 << 30), pool) as outlet:
            merge = Merge(ReadyStreams(streams), InterleaveOrder(len(streams), 1), MergeLog())
            merge.works_ahead = works_ahead
            await merge.run(outlet)
    finally:
        assert pool.close(1.0)
    chunks = []
    while True:
        try:
            chunks.append(await receiver.receive())
        except EndOfStream:
            return chunks


@pytest.mark.parametrize("works_ahead", [False, True])
def test_streams_that_run_out_together_make_no_chunks_of_single_rows(works_ahead: bool) -> None:
    streams: list[list[Chunk]] = [
        [numbers(first, ROWS) for first in range(slot * 10 * ROWS, slot * 10 * ROWS + 4 * ROWS, ROWS)]
        for slot in range(STREAMS)
    ]
    chunks = asyncio.run(merged(streams, works_ahead=works_ahead))
    rows = [value for chunk in chunks for value in chunk.elements()]
    assert rows == [slot * 10 * ROWS + row for row in range(4 * ROWS) for slot in range(STREAMS)]
    # Opening a stream may take long, so the row before it goes out; after that, chunks are full.
    assert [len(chunk) for chunk in chunks] == [1, 1, HOP_ROWS, 4 * ROWS * STREAMS - HOP_ROWS - 2]
