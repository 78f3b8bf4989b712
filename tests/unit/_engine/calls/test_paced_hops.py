"""How long the hops of one thread and of several are, and from which hops they grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from event_order import run, settle

from aiostream_data._engine.calls.paced_hops import HopPiece, PacedHops, first_share
from aiostream_data._engine.calls.pacing import CHEAP_ROW_S, HOP_GROWTH, HOP_S, LONG_HOP_S
from aiostream_data._engine.calls.row_work import Done, RowWork, Tally
from aiostream_data._engine.flow.channel import open_channel
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.memory.budget import Budget
from aiostream_data.executors.base import Outcome
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.metrics.machine import CoreTime
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF

ROWS = 4_096
CPUS = 2

CHEAP_S = CHEAP_ROW_S / 2
WAITS_S = 1e-3


def numbers(count: int = ROWS) -> Columns:
    return Columns(LEAF, (np.arange(count),), RowIds.run(0, 0, count))


def outcome_of(rows: Chunk, row_s: float, *, is_for_a_core: bool = False) -> Outcome:
    """Return the outcome of a hop that waited ``row_s`` seconds for each row, perhaps for a core."""
    busy_s = row_s * len(rows)
    tally = Tally(len(rows), len(rows), rows.nbytes, [], 0, busy_s, 0.0)
    core = CoreTime(0.0, busy_s if is_for_a_core else 0.0)
    return Outcome(Done(rows, rows.nbytes, None, (tally,), core=core), busy_s=busy_s)


@dataclass
class Worker:
    """Threads whose hops end at once, or when a test says so. It is an executor and a place of work.

    Attributes:
        row_s: Seconds for which each row says that it took.
        is_for_a_core: True if these are seconds without a core, False if they are seconds asleep.
        sizes: Number of rows of every hop that has begun.
        begun: The hops, if the test ends them by hand.
        limits: Every limit of concurrent hops that was set.
    """

    row_s: float = CHEAP_S
    is_for_a_core: bool = False
    by_hand: bool = False
    sizes: list[int] = field(default_factory=list)
    begun: list[tuple[asyncio.Future[Outcome], Chunk]] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    is_far: ClassVar[bool] = False
    runs_in: ClassVar[str] = "threads"

    def queues_beyond(self, hops: int) -> bool:
        self.limits.append(hops)
        return True

    def submit(self, work: Any, rows: Chunk, timeout_s: float | None = None) -> asyncio.Future[Outcome]:
        self.sizes.append(len(rows))
        hop: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.begun.append((hop, rows))
        if not self.by_hand:
            self.end(-1)
        return hop

    def submit_first(self, work: Any, rows: Chunk) -> asyncio.Future[Outcome]:
        return self.submit(work, rows)

    def submit_within(self, limit_s: float, work: Any, rows: Chunk) -> asyncio.Future[Outcome]:
        return self.submit(work, rows)

    def end(self, number: int) -> None:
        hop, rows = self.begun[number]
        hop.set_result(outcome_of(rows, self.row_s, is_for_a_core=self.is_for_a_core))

    def end_all(self) -> None:
        for number, (hop, _) in enumerate(self.begun):
            if not hop.done():
                self.end(number)

    def close(self, timeout_s: float) -> bool:
        return True


class FarWorker(Worker):
    is_far: ClassVar[bool] = True


def hops_of(
    worker: Worker, fixed_workers: int | None = None, noted: Callable[[PacedHops], None] = lambda hops: None
) -> PacedHops:
    """Return hops on ``worker``. ``noted`` is called after each of them, before the next one is cut."""

    async def account(piece: HopPiece, done: Done, transfer_s: float) -> Done:
        noted(hops)
        return replace(done, chunk=done.chunk.slice(0, 0))  # nobody receives rows

    hops = PacedHops(
        work=RowWork(()),
        place=worker,
        serial=worker if fixed_workers is None else None,
        processes=None,
        budget=Budget(1 << 30),
        take_in=lambda chunk: 0,
        account=account,
        fixed_workers=fixed_workers,
        ordered=False,
        cpus=CPUS,
    )
    return hops


def running(hops: PacedHops, *chunks: Chunk | Callable[[], Chunk]) -> Awaitable[None]:
    """Run the hops over chunks, each of which may be made when its turn has come."""

    async def inlet() -> AsyncIterator[Chunk]:
        for chunk in chunks:
            yield chunk() if callable(chunk) else chunk

    outlet = Outlet(open_channel(1, 1)[0], StageCounters("map"), hops.budget)
    return hops.run(inlet(), outlet)


def test_auto_takes_long_hops_with_several_threads_and_short_ones_with_one() -> None:
    seen: list[tuple[int, float]] = []
    worker = Worker(WAITS_S)
    hops = hops_of(worker, noted=lambda hops: seen.append((hops.workers, hops.pace.hop_s)))
    assert (hops.workers, hops.pace.hop_s) == (1, HOP_S)

    def cheap_from_now_on() -> Chunk:
        assert hops.workers > 1
        worker.row_s = CHEAP_S / 100
        return numbers()

    async def case() -> None:
        await running(hops, numbers(), cheap_from_now_on)

    run(case())
    assert all(hop_s == (LONG_HOP_S if workers > 1 else HOP_S) for workers, hop_s in seen)
    assert {hop_s for _, hop_s in seen} == {LONG_HOP_S, HOP_S}
    assert seen[-1] == (1, HOP_S)


def test_rows_of_a_millisecond_go_to_several_threads_sixty_at_once() -> None:
    worker = Worker(WAITS_S)

    async def case() -> None:
        await running(hops_of(worker), numbers())

    run(case())
    assert worker.sizes[0] == 1
    assert max(worker.sizes) == pytest.approx(LONG_HOP_S / WAITS_S, abs=1)


def test_cheap_rows_go_to_one_thread_for_ten_milliseconds() -> None:
    worker = Worker(CHEAP_S)

    async def case() -> None:
        await running(hops_of(worker), numbers(), numbers())

    run(case())
    assert max(worker.sizes) == pytest.approx(HOP_S / CHEAP_S, abs=1)


@pytest.mark.parametrize(
    ("worker", "fixed_workers", "hop_s"),
    [(Worker(), 1, HOP_S), (Worker(), 2, LONG_HOP_S), (FarWorker(), 1, LONG_HOP_S), (FarWorker(), 2, LONG_HOP_S)],
)
def test_a_number_of_workers_that_was_given_decides_how_long_hops_are(
    worker: Worker, fixed_workers: int, hop_s: float
) -> None:
    assert hops_of(worker, fixed_workers).pace.hop_s == hop_s


def test_hops_grow_from_the_largest_one_that_has_finished() -> None:
    """Several hops begin before one has ended, so those that have begun say nothing about the output of a row."""
    worker = Worker(CHEAP_S / 100, by_hand=True)

    async def case() -> None:
        task = asyncio.ensure_future(running(hops_of(worker, fixed_workers=4), numbers()))
        await settle()
        first = len(worker.begun)
        assert first > 4
        assert set(worker.sizes) == {1}
        for number in range(first):  # each of them makes room for another hop
            worker.end(number)
            await settle()
        assert set(worker.sizes[first:]) == {1, HOP_GROWTH}
        worker.end(worker.sizes.index(HOP_GROWTH))
        await settle()  # begins a hop that was cut before this end
        assert max(worker.sizes) == HOP_GROWTH
        worker.by_hand = False
        worker.end_all()
        await task
        assert HOP_GROWTH**2 in worker.sizes

    run(case())


def test_expensive_rows_have_a_hop_in_the_queue_so_that_no_thread_waits_for_the_loop() -> None:
    worker = Worker(WAITS_S)
    hops = hops_of(worker)

    async def case() -> None:
        await running(hops, numbers(64))  # measures the cost of a row
        worker.by_hand, first = True, len(worker.begun)
        task = asyncio.ensure_future(running(hops, numbers()))
        await settle()
        assert len(worker.begun) - first == hops.workers + hops.workers // 2
        assert worker.limits[-1] == hops.workers
        worker.by_hand = False
        worker.end_all()
        await task

    run(case())


@pytest.mark.parametrize(("is_for_a_core", "workers"), [(False, 4 * CPUS), (True, CPUS)])
def test_a_thread_that_waits_for_a_core_does_not_count_as_one_that_waits_for_io(
    is_for_a_core: bool, workers: int
) -> None:
    hops = hops_of(Worker(WAITS_S, is_for_a_core))

    async def case() -> None:
        await running(hops, numbers())

    run(case())
    assert hops.workers == workers


@pytest.mark.parametrize(
    ("rows", "most", "sizes"), [(47, 23, [23, 12, 12]), (48, 24, [24, 24]), (25, 24, [13, 12]), (5, 9, [5])]
)
def test_the_last_two_hops_of_a_chunk_share_its_rows_evenly(rows: int, most: int, sizes: list[int]) -> None:
    found = []
    while rows:
        found.append(first_share(rows, most))
        rows -= found[-1]
    assert found == sizes
