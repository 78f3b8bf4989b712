"""Hops and their window: order, bounds, and what happens when one fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from event_order import run, settle

from aiostream_data._engine.calls.pacing import HOP_GROWTH, HOP_S, LONG_HOP_S, Pace
from aiostream_data._engine.flow.chunk_sizes import (
    CHUNK_ROWS,
    HOP_ROWS,
    LOW_MEMORY_CHUNK_NBYTES,
    rows_of_a_chunk,
    rows_of_a_slice,
)
from aiostream_data._engine.flow.hops import Hops
from aiostream_data._engine.flow.resizable_semaphore import ResizableSemaphore
from aiostream_data.executors.base import Outcome


async def numbers(count: int, closed: list[bool] | None = None) -> AsyncIterator[int]:
    try:
        for number in range(count):
            yield number
    finally:
        if closed is not None:
            closed.append(True)


class Jobs:
    """Futures that a test finishes by hand, in the order it likes."""

    def __init__(self) -> None:
        self.begun: dict[int, asyncio.Future[Outcome]] = {}
        self.emitted: list[int] = []

    def begin(self, job: int) -> asyncio.Future[Outcome]:
        self.begun[job] = asyncio.get_running_loop().create_future()
        return self.begun[job]

    async def emit(self, job: int, outcome: Outcome) -> None:
        if outcome.error is not None:
            raise outcome.error
        assert outcome.value == job
        self.emitted.append(job)

    def finish(self, job: int) -> None:
        self.begun[job].set_result(Outcome(job))

    @property
    def open(self) -> list[int]:
        return [job for job, future in self.begun.items() if not future.done()]


@pytest.mark.parametrize("limit", [1, 2, 7])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_every_job_is_emitted_once_and_no_more_than_the_window_are_held(limit: int, ordered: bool, seed: int) -> None:
    async def case() -> None:
        rng, jobs = random.Random(seed), Jobs()
        running = asyncio.create_task(Hops(jobs.begin, jobs.emit, ResizableSemaphore(limit), ordered).run(numbers(30)))
        while not running.done():
            await settle()
            assert len(jobs.begun) - len(jobs.emitted) <= limit
            if jobs.open:
                jobs.finish(rng.choice(jobs.open))
        await running
        assert sorted(jobs.emitted) == list(range(30))
        assert jobs.emitted == list(range(30)) or not ordered

    run(case())


def test_an_unordered_result_does_not_wait_for_a_slow_one_before_it() -> None:
    async def case() -> None:
        jobs = Jobs()
        running = asyncio.create_task(Hops(jobs.begin, jobs.emit, ResizableSemaphore(2), ordered=False).run(numbers(4)))
        for job in (1, 2, 3):
            await settle()
            jobs.finish(job)
        await settle()
        assert jobs.emitted == [1, 2, 3]
        jobs.finish(0)
        await running

    run(case())


def test_an_error_is_raised_in_its_jobs_turn_and_closes_the_jobs() -> None:
    async def case() -> None:
        jobs, closed = Jobs(), list[bool]()
        running = asyncio.create_task(
            Hops(jobs.begin, jobs.emit, ResizableSemaphore(3), ordered=True).run(numbers(30, closed))
        )
        await settle()
        jobs.begun[1].set_result(Outcome(None, KeyError("job 1")))
        await settle()
        assert not running.done()
        jobs.finish(0)
        with pytest.raises(ExceptionGroup) as caught:
            await running
        assert [type(error) for error in caught.value.exceptions] == [KeyError]
        assert jobs.emitted == [0]
        assert closed == [True]

    run(case())


def test_cancelling_the_run_closes_the_jobs() -> None:
    async def case() -> None:
        jobs, closed = Jobs(), list[bool]()
        running = asyncio.create_task(
            Hops(jobs.begin, jobs.emit, ResizableSemaphore(3), ordered=True).run(numbers(30, closed))
        )
        await settle()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert closed == [True]

    run(case())


def test_a_window_lets_more_in_when_it_is_widened_and_fewer_when_narrowed() -> None:
    async def case() -> None:
        window = ResizableSemaphore(1)
        await window.acquire()
        waiting = [asyncio.create_task(window.acquire()) for _ in range(3)]
        await settle()
        assert sum(task.done() for task in waiting) == 0
        window.limit = 3
        await settle()
        assert sum(task.done() for task in waiting) == 2
        window.limit = 1
        window.release()
        window.release()
        await settle()
        assert sum(task.done() for task in waiting) == 2
        window.release()
        await asyncio.gather(*waiting)

    run(case())


def test_a_cancelled_wait_takes_no_place_in_the_window() -> None:
    async def case() -> None:
        window = ResizableSemaphore(1)
        await window.acquire()
        waiting = asyncio.create_task(window.acquire())
        await settle()
        window.release()
        waiting.cancel()
        await settle()
        await asyncio.wait_for(window.acquire(), 1)

    run(case())


def test_the_pace_grows_from_few_rows_to_about_ten_milliseconds_of_work() -> None:
    pace = Pace()
    row_s = 50e-6
    for _ in range(20):
        pace.observe(pace.rows, pace.rows * row_s, pace.rows * row_s)
    assert pace.rows == pytest.approx(HOP_S / row_s, rel=0.1)


def test_hops_that_start_before_the_first_output_is_known_do_not_multiply_the_growth() -> None:
    """The first rows are small, and those after them large: few rows may be in flight until that is known."""
    pace = Pace(hop_nbytes=4_000_000)
    for _ in range(4):  # four hops of one row were started at once
        pace.observe(1, 1e-6, 1e-6, nbytes=4_000)
        assert pace.rows <= 16
    pace.observe(16, 16e-6, 16e-6, nbytes=16 * 400_000)
    assert pace.rows == 10


def test_a_small_hop_that_ends_after_a_large_one_does_not_slow_the_growth_down() -> None:
    pace = Pace()
    for rows in (1, HOP_GROWTH, 3):  # a chunk ends with the rows that are left
        pace.observe(rows, rows * 1e-6, rows * 1e-6)
    assert pace.rows == HOP_GROWTH**2


def test_a_hop_to_another_process_is_longer_unless_it_would_make_too_many_bytes() -> None:
    small, large = Pace(LONG_HOP_S, hop_nbytes=20_000_000), Pace(LONG_HOP_S, hop_nbytes=20_000_000)
    row_s = 50e-6
    for _ in range(20):
        small.observe(small.rows, small.rows * row_s, small.rows * row_s, nbytes=8 * small.rows)
        large.observe(large.rows, large.rows * row_s, large.rows * row_s, nbytes=100_000 * large.rows)
    assert small.rows == pytest.approx(LONG_HOP_S / row_s, rel=0.1)
    assert large.rows == 200


def test_one_slow_row_is_not_believed_at_once_and_many_are() -> None:
    pace = Pace()
    for _ in range(20):
        pace.observe(1000, 0.001, 0.001)
    rows = pace.rows
    pace.observe(1000, 10.0, 0.001)
    assert pace.rows > rows // 8
    assert pace.workers(cpus=2) == 1
    for _ in range(20):
        pace.observe(pace.rows, 0.01 * pace.rows, 0.0)
    assert pace.rows == 1
    assert pace.workers(cpus=2) == 8


def test_the_pace_stays_between_one_row_and_the_most_of_a_hop() -> None:
    slow, fast = Pace(), Pace()
    for _ in range(20):
        slow.observe(slow.rows, 60.0 * slow.rows, 0.0)
        fast.observe(fast.rows, 0.0, 0.0)
    assert slow.rows == 1
    assert fast.rows == HOP_ROWS
    fast.observe(0, 1.0, 1.0)
    assert fast.rows == HOP_ROWS


def test_auto_takes_one_worker_for_cheap_rows_and_more_for_rows_that_wait() -> None:
    cheap, computing, waiting = Pace(), Pace(), Pace()
    for _ in range(20):
        cheap.observe(100, 100 * 1e-6, 100 * 1e-6)
        computing.observe(1, 0.01, 0.01)
        waiting.observe(1, 0.01, 0.0)
    assert cheap.workers(4) == 1
    assert computing.workers(4) == 4
    assert waiting.workers(4) > 4


def test_a_function_that_waits_goes_to_many_threads_after_two_calls_and_never_holds_the_gil() -> None:
    pace = Pace()
    pace.observe(1, 0.01, 0.0001)
    assert pace.workers(4) == 1  # a first call may wait for an import or a connection
    pace.observe(1, 0.01, 0.0001)
    assert pace.workers(4) == 16
    for _ in range(50):
        pace.observe(10, 0.1, 0.001, at_once=16)
    assert pace.workers(4) == 16
    assert not pace.holds_gil(4)


def test_a_function_whose_first_call_waits_is_judged_by_the_calls_after_it() -> None:
    pace = Pace()
    pace.observe(1, 0.5, 0.001)
    pace.observe(1, 0.01, 0.01)
    assert pace.workers(4) == 4


def test_a_chunk_of_large_rows_has_few_of_them_and_at_least_one() -> None:
    assert rows_of_a_chunk(100, 100 * 8) == HOP_ROWS
    assert rows_of_a_chunk(4, 4 * LOW_MEMORY_CHUNK_NBYTES // 2) == 2
    assert rows_of_a_chunk(1, 100 * LOW_MEMORY_CHUNK_NBYTES) == 1
    assert rows_of_a_chunk(0, 0) == 1


def test_a_slice_of_large_rows_has_as_many_of_them_as_one_of_any_rows() -> None:
    assert rows_of_a_slice(100, 100 * 8) == HOP_ROWS
    assert rows_of_a_slice(100, 100 * 64) == LOW_MEMORY_CHUNK_NBYTES // 64
    assert rows_of_a_slice(4, 4 * LOW_MEMORY_CHUNK_NBYTES) == CHUNK_ROWS
    assert rows_of_a_slice(0, 0) == CHUNK_ROWS
