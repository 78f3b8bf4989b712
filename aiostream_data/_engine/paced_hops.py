"""Cut chunks into hops of about ten milliseconds and run user code over them, several hops at a time.

How this works. While a row is cheap, threads would only fight for the GIL: hops run one after another
on one thread, with the next one waiting in its queue, and the outlet's tail works in the same hops.
When rows turn out to be expensive, hops run on many threads at once, and the tail takes their results
in order, in hops of its own. The change from one to the other waits until nothing is in flight, so
that the tail never sees rows out of order or from two threads at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import numpy as np

from aiostream_data._engine.context import settle
from aiostream_data._engine.emission_log import EmissionLog
from aiostream_data._engine.ends import Outlet
from aiostream_data._engine.hops import Hops
from aiostream_data._engine.pacing import Pace
from aiostream_data._engine.tail import Joined
from aiostream_data._engine.window import Window
from aiostream_data.executors.base import Executor, Outcome
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.records import Chunk, lineage_of

MAX_AUTO_THREADS = 32

SERIAL_HOPS = 2
"""Hops in flight on one thread: the one that runs, and the next, so that the thread never waits for the loop."""

Job = tuple[Callable[[Chunk], Chunk], Chunk]


@dataclass
class PacedHops:
    """Runs the hops of one stage.

    Attributes:
        counters: Of the stage whose hops these are.
        executor: For several hops at once.
        serial: One thread of this process, for one hop after another; None where there is no such thread.
        job_for: Gives the work of a hop, and the rows to call it with.
        leaves_out: The work may return fewer rows than it was given, on purpose.
        log: Where an unordered stage notes what it takes in and gives out.
        fixed_workers: Hops at once, or None to choose from what rows cost.
    """

    counters: StageCounters
    executor: Executor
    serial: Executor | None
    job_for: Callable[[Chunk], Job]
    fixed_workers: int | None
    ordered: bool
    cpus: int
    log: EmissionLog | None = None
    leaves_out: bool = False
    pace: Pace = field(default_factory=Pace)
    _workers: int = 1
    _apart: int = 0
    """Hops in flight whose rows the tail has yet to take."""

    def __post_init__(self) -> None:
        self._workers = self.fixed_workers or 1
        self._window = Window(self._workers)

    async def run(self, inlet: AsyncIterator[Chunk], outlet: Outlet) -> None:
        """Send what the jobs of all chunks give."""

        async def emit(job: tuple[Chunk, int], outcome: Outcome) -> None:
            piece, number = job
            joined = outcome.value
            if isinstance(joined, Joined):
                self._learn(len(piece), joined.busy_s, joined.cpu_s)
                self._left_out(outlet, len(piece) - joined.rows)
                await outlet.accept(joined)
                return
            self._learn(len(piece), outcome.busy_s, outcome.cpu_s)
            result = settle(self.counters, outcome)
            self._left_out(outlet, len(piece) - len(result))
            if self.log is not None:
                self.log.give_out(np.arange(number, number + len(piece)))
            await outlet.send(result)
            self._apart -= 1

        def begin(job: tuple[Chunk, int]) -> asyncio.Future[Outcome]:
            piece, _ = job
            work, rows = self.job_for(piece)
            if self.serial is not None and self._workers == 1:
                joins = outlet.tail is not None and self.ordered and self._apart == 0
                if joins or outlet.tail is None:
                    self._window.limit = SERIAL_HOPS
                if outlet.tail is not None and joins:
                    return self.serial.submit(outlet.tail.join, work, rows)
                self._apart += 1
                return self.serial.submit(work, rows)
            self._apart += 1
            return self.executor.submit(work, rows)

        await Hops(begin, emit, self._window, self.ordered).run(self._pieces(inlet))

    def _left_out(self, outlet: Outlet, rows: int) -> None:
        if self.leaves_out:
            outlet.drop(rows)

    async def _pieces(self, inlet: AsyncIterator[Chunk]) -> AsyncIterator[tuple[Chunk, int]]:
        async for chunk in inlet:
            number = 0 if self.log is None else self.log.take_in(lineage_of(chunk))
            start = 0
            while start < len(chunk):
                stop = min(start + self._rows_of_a_hop(len(chunk)), len(chunk))
                yield (chunk if stop - start == len(chunk) else chunk.slice(start, stop)), number + start
                start = stop

    def _rows_of_a_hop(self, chunk_rows: int) -> int:
        # A chunk is shared out among all workers, so that none idles while another has it all.
        return max(1, min(self.pace.rows, -(-chunk_rows // self._workers)))

    def _learn(self, rows: int, busy_s: float, cpu_s: float) -> None:
        self.pace.observe(rows, busy_s, cpu_s)
        workers = self.fixed_workers or min(self.pace.workers(self.cpus), MAX_AUTO_THREADS)
        if workers != self._workers:
            self._workers = self._window.limit = workers
        self.counters.workers = self._workers
