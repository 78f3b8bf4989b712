"""An outlet that sends ahead: work for the next chunk runs while the steps process the chunk before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing

from aiostream_data._engine.flow.channel import Receiver, open_channel
from aiostream_data._engine.flow.fused_steps import Step, Tail
from aiostream_data._engine.flow.merge import Merge, Stream
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.resume.merge_log import MergeLog
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.sources import Range
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.transforms.interleave import InterleaveOrder

WAIT_S = 20.0


class Blocking(Step):
    """A step that waits before it passes on the chunk of number 1, and fails for the chunk of number 13."""

    may_pass: threading.Event
    has_begun: threading.Event

    def push(self, chunk: Chunk) -> Chunk | None:
        (number,) = chunk.elements()
        if number == 1:
            self.has_begun.set()
            assert self.may_pass.wait(WAIT_S)
        if number == 13:
            raise ZeroDivisionError
        return chunk


def chunk_of(number: int, made: list[int] | None = None) -> Chunk:
    if made is not None:
        made.append(number)
    return Columns(LEAF, (np.array([number]),), RowIds.run(0, number, 1))


def fails() -> Chunk:
    raise ZeroDivisionError


def run(case: Callable[[Outlet, Blocking, Receiver[Chunk]], Awaitable[None]]) -> None:
    async def main() -> None:
        sender, receiver = open_channel(100, 1 << 30)
        pool = ThreadExecutor(2, "ahead")
        context: Any = None
        step = Blocking(Range(start=0, stop=1, step=1), context, StageCounters("step"))
        step.may_pass, step.has_begun = threading.Event(), threading.Event()
        try:
            with Outlet(sender, StageCounters("merge"), Budget(1 << 30), pool, Tail([step])) as outlet:
                await asyncio.wait_for(case(outlet, step, receiver), WAIT_S)
        finally:
            step.may_pass.set()
            assert pool.close(WAIT_S)

    with leaves_nothing():
        asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_work_for_the_next_chunk_runs_while_a_step_is_busy_and_chunks_stay_in_order() -> None:
    async def case(outlet: Outlet, step: Blocking, receiver: Receiver[Chunk]) -> None:
        made: list[int] = []
        await outlet.send_ahead(chunk_of, 1, made)
        await until(step.has_begun.is_set)
        sending = asyncio.create_task(outlet.send_ahead(chunk_of, 2, made))
        await until(lambda: made == [1, 2])
        assert not sending.done()
        assert not receiver.ready
        step.may_pass.set()
        await sending
        await outlet.settled()
        assert [(await receiver.receive()).elements() for _ in range(2)] == [[1], [2]]
        assert outlet.rows == 2

    run(case)


def test_an_error_of_a_step_is_raised_before_the_next_chunk_is_sent() -> None:
    async def case(outlet: Outlet, step: Blocking, receiver: Receiver[Chunk]) -> None:
        await outlet.send_ahead(chunk_of, 13)
        with pytest.raises(ZeroDivisionError):
            await outlet.send_ahead(chunk_of, 14)
        await outlet.settled()
        assert not receiver.ready

    run(case)


def test_an_error_of_the_work_is_raised_when_the_outlet_settles() -> None:
    async def case(outlet: Outlet, step: Blocking, receiver: Receiver[Chunk]) -> None:
        await outlet.send_ahead(fails)
        with pytest.raises(ZeroDivisionError):
            await outlet.settled()

    run(case)


def test_a_chunk_that_was_not_sent_is_discarded_without_waiting_for_the_step() -> None:
    async def case(outlet: Outlet, step: Blocking, receiver: Receiver[Chunk]) -> None:
        await outlet.send_ahead(chunk_of, 1)
        await until(step.has_begun.is_set)
        await outlet.discard_ahead()
        assert not receiver.ready
        await outlet.settled()
        step.may_pass.set()

    run(case)


def test_a_cancelled_wait_cancels_the_sending() -> None:
    async def case(outlet: Outlet, step: Blocking, receiver: Receiver[Chunk]) -> None:
        await outlet.send_ahead(chunk_of, 1)
        await until(step.has_begun.is_set)
        waiting = asyncio.create_task(outlet.settled())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        step.may_pass.set()
        await asyncio.sleep(0.01)
        assert not receiver.ready

    run(case)


class Place:
    """The place of a stream that nobody asks for."""

    def at(self, given: int, book: Any) -> Any:
        raise NotImplementedError

    def forget(self, given: int) -> None:
        raise NotImplementedError


class OpenStreams:
    """Streams of one chunk each that never end."""

    is_ready = True

    def __init__(self, count: int) -> None:
        self._senders: list[Any] = []
        self._left = list(range(count))

    async def next(self) -> Stream | None:
        if not self._left:
            return None
        sender, receiver = open_channel(2, 1 << 30)
        self._senders.append(sender)
        sender.put(rows_from(self._left.pop(0) * 5_000), 1)
        return Stream(receiver, Place())

    async def again(self, state: Any, given: int) -> Stream | None:
        raise NotImplementedError

    def ended(self) -> None:
        pass


def rows_from(first: int) -> Chunk:
    return Columns(LEAF, (np.arange(first, first + 5_000),), RowIds.run(0, first, 5_000))


class Failing(Step):
    def push(self, chunk: Chunk) -> Chunk | None:
        raise ZeroDivisionError


def test_an_error_of_a_step_is_raised_while_the_inputs_have_no_more_rows() -> None:
    async def main() -> None:
        sender, receiver = open_channel(100, 1 << 30)
        pool = ThreadExecutor(2, "ahead")
        context: Any = None
        merge = Merge(OpenStreams(2), InterleaveOrder(2, 1), MergeLog())
        merge.works_ahead = True
        step = Failing(Range(start=0, stop=1, step=1), context, StageCounters("step"))
        try:
            outlet = Outlet(sender, StageCounters("merge"), Budget(1 << 30), pool, Tail([step]))
            with outlet, pytest.raises(ZeroDivisionError):
                await asyncio.wait_for(merge.run(outlet), WAIT_S)
        finally:
            receiver.close()
            assert pool.close(WAIT_S)

    with leaves_nothing():
        asyncio.run(main())
