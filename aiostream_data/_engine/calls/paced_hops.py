"""Split chunks into hops (units of work) of about ten milliseconds, and run several hops concurrently on workers.

For rows that are cheap to process, several threads would only compete for the GIL. Therefore, hops of cheap rows run
one after another on a single thread, with the next hop already queued. The *tail* (all later operators that need no
asyncio task of their own) runs in the same hops. For expensive rows, hops run on many workers concurrently, and the
tail processes their results in row order, in separate hops. The scheduler switches between these two modes only when no
hop is in flight. Therefore the tail receives rows in order and from one thread at a time. If a user function holds the
GIL and can be pickled, its hops move to worker processes.

A single row may take far longer to process than the others. With AUTO concurrency, the scheduler does not count a late
hop as an occupied worker, so another hop can start. If a slow row blocks the single thread, later hops run on other
threads until the limit of buffered results is reached.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from aiostream_data._engine.calls.gil_probe import LOOK_AFTER_S, GilProbe
from aiostream_data._engine.calls.isolation import alone, broke_off
from aiostream_data._engine.calls.late_hops import LateHops
from aiostream_data._engine.calls.pacing import CHEAP_ROW_S, HOP_S, LONG_HOP_S, Pace
from aiostream_data._engine.calls.result_budget import ResultBudget
from aiostream_data._engine.calls.result_sizes import SharedResults
from aiostream_data._engine.calls.row_work import Done, RowWork
from aiostream_data._engine.calls.work_place import WorkPlace
from aiostream_data._engine.failures.carried_error import as_raisable
from aiostream_data._engine.flow.context import value_of
from aiostream_data._engine.flow.fused_steps import Joined
from aiostream_data._engine.flow.hops import Hops
from aiostream_data._engine.flow.resizable_semaphore import ResizableSemaphore
from aiostream_data._engine.flow.sizes import about_nbytes
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._native import Charge
from aiostream_data.executors.base import Executor, Outcome
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.rows.records import Chunk

MAX_AUTO_THREADS = 32

SERIAL_HOPS = 2
"""Maximum hops in flight on a single thread: one runs and one is queued, so the thread never waits for the loop."""

HOP_SHARE = 32
"""Target maximum output of a hop (one call on a worker), as a fraction (1/32) of the memory limit."""

MAX_HOP_NBYTES = 16 << 20
"""Target maximum output of a hop in bytes, independent of the memory limit, chosen to fit CPU caches."""


class HopPiece(NamedTuple):
    """Rows of one hop, with the stage-wide number of the first row and the memory charge for the results."""

    rows: Chunk
    number: int
    room: Charge | None = None


Account = Callable[[HopPiece, Done, float], Awaitable[Done]]


@dataclass
class PacedHops:
    """Scheduler for the hops (units of work) of consecutive row-wise operators.

    Attributes:
        work: Work that each hop performs on its rows.
        place: Executor for concurrent hops.
        serial: Single thread that runs consecutive cheap hops. ``serial`` is None if work runs in another process or
            interpreter. ``serial`` is also None if rows have a timeout, because the engine cannot abandon a hop that
            also runs the tail.
        processes: Function that returns the executor to use when threads block each other on the GIL. None disables
            this executor.
        take_in: Function that numbers the rows of a new chunk and returns the number of the first row.
        account: Coroutine function that records a hop's statistics and transfer seconds before the rows of the hop are
            emitted. ``account`` returns the result that the stage emits.
        hands_all_on: True if ``account`` never removes rows. In this case, the tail (the later operators) can run in
            the same hop.
        fixed_workers: Number of concurrent hops; None chooses the number from the cost of a row.
        timeout_s: Maximum seconds to process one row.
        one_at_a_time: Start a hop only after the rows of the previous hop were emitted.
        pace: Cost of a row, if an earlier run of the operators measured it.
        shared: What the memory reservations of several runs of the operators share; None for a single run.
    """

    work: RowWork
    place: WorkPlace
    serial: Executor | None
    processes: Callable[[], WorkPlace | None] | None
    budget: Budget
    take_in: Callable[[Chunk], int]
    account: Account
    fixed_workers: int | None
    ordered: bool
    cpus: int
    timeout_s: float | None = None
    hands_all_on: bool = True
    one_at_a_time: bool = False
    pace: Pace = field(default_factory=Pace)
    shared: SharedResults | None = None
    workers: int = 1
    _apart: int = 0
    """Number of hops in flight that have not yet passed their rows to the tail (the later operators)."""

    def __post_init__(self) -> None:
        self.workers = self.fixed_workers or min(self.pace.workers(self.cpus), MAX_AUTO_THREADS)
        self.pace.hop_s = _hop_s(self.place, self.workers)
        # A hop without output releases no bytes, so its end must wake the budget's waiters here.
        self._running, self._held = ResizableSemaphore(1), ResizableSemaphore(1, self.budget.poke)
        self._allowed = 1, 1
        me = weakref.ref(self)  # a cycle would keep the user's functions until a garbage collection; timers may be late
        self.probe = GilProbe(lambda: 0 if (hops := me()) is None else hops._threads_at_work())
        self._late = LateHops(MAX_AUTO_THREADS, lambda: None if (hops := me()) is None else hops._allow(*hops._allowed))
        held = self._held
        self._results = ResultBudget(self.budget, lambda: held.taken, self.shared)
        self.pace.hop_nbytes = max(1, min(self.budget.limit // HOP_SHARE, MAX_HOP_NBYTES))
        self._widen()

    async def run(self, inlet: AsyncIterator[Chunk], outlet: Outlet) -> None:
        """Run the work over all chunks of ``inlet`` and send the results to ``outlet``."""
        async with asyncio.TaskGroup() as group:

            def begin(piece: HopPiece) -> asyncio.Future[Outcome]:
                if self.serial is not None and self.workers == 1 and not self._late:
                    return self._watched(self._probed(self._begin_serial(self.serial, piece, outlet)))
                self._apart += 1
                return self._watched(self._probed(group.create_task(self._at_place(piece))))

            async def emit(piece: HopPiece, outcome: Outcome) -> None:
                await self._emit(piece, outcome, outlet)

            hops = Hops(begin, emit, self._held, self.ordered, self._running, self.one_at_a_time)
            await hops.run(self._pieces(inlet))

    def _begin_serial(self, serial: Executor, piece: HopPiece, outlet: Outlet) -> asyncio.Future[Outcome]:
        joins = outlet.tail is not None and self.ordered and self.hands_all_on and self._apart == 0
        if joins or outlet.tail is None:
            self._allow(SERIAL_HOPS, SERIAL_HOPS)
        if outlet.tail is not None and joins:
            return serial.submit(outlet.tail.join_rows, self.work, piece.rows)
        self._apart += 1
        return serial.submit(self.work, piece.rows)

    async def _at_place(self, piece: HopPiece) -> Outcome:
        """Run one hop concurrently with other hops.

        If the hop aborts, run its rows one by one to find the failing row.
        """
        outcome = await self.place.submit(self.work, piece.rows, self.timeout_s)
        if broke_off(outcome):
            outcome = await alone(self.place, self.work, piece.rows, self.timeout_s, outcome)
        if isinstance(outcome.value, Done):  # results that wait for earlier hops count against the limit
            done = outcome.value
            lease = self._results.returned(piece.room, about_nbytes(piece.rows), done.nbytes)
            return replace(outcome, value=replace(done, chunk=done.chunk.with_lease(lease)))
        return outcome

    def _probed(self, hop: asyncio.Future[Outcome]) -> asyncio.Future[Outcome]:
        """Schedule a probe of the GIL during the hop, if a probe is due and rows are expensive to process."""
        is_cheap = self.pace.row_s < CHEAP_ROW_S
        if not is_cheap and not self.place.is_far and not self.one_at_a_time and self.probe.is_due:
            timer = asyncio.get_running_loop().call_later(LOOK_AFTER_S, self.probe.look)
            hop.add_done_callback(lambda _: timer.cancel())
        return hop

    def _threads_at_work(self) -> int:
        executors = (self.serial, getattr(self.place, "executor", None))
        return sum(len(each.at_work) for each in executors if isinstance(each, ThreadExecutor))

    def _watched(self, hop: asyncio.Future[Outcome]) -> asyncio.Future[Outcome]:
        """With AUTO concurrency, allow one additional hop while this hop is late."""
        if self.fixed_workers is None:
            self._late.watch(hop)
        return hop

    async def _emit(self, piece: HopPiece, outcome: Outcome, outlet: Outlet) -> None:
        value: Any = value_of(outcome)
        if isinstance(value, Done):
            self._learn(len(piece.rows), outcome, value)
            done = await self.account(piece, self._settled(piece, value), outcome.transfer_s)
            await outlet.send(done.chunk)
            self._apart -= 1
            if done.failure is not None:
                raise as_raisable(done.failure)
            return
        done, joined = value
        assert isinstance(joined, Joined)
        self._learn(len(piece.rows), replace(outcome, busy_s=_busy(done), cpu_s=_cpu(done)), done)
        await self.account(piece, self._settled(piece, done), 0.0)
        if piece.room is not None:
            piece.room.end()  # the outlet counts the rows that the tail gives out
        await outlet.accept(joined)

    def _settled(self, piece: HopPiece, done: Done) -> Done:
        """Reduce the memory reserved for a hop to the size of its result, unless this has been done."""
        room = piece.room
        if room is None or done.chunk.lease is room:
            return done
        self._results.returned(room, about_nbytes(piece.rows), done.nbytes)
        if done.chunk.lease is None:
            return replace(done, chunk=done.chunk.with_lease(room))
        room.end()  # the lease of the input counts the rows
        return done

    async def _pieces(self, inlet: AsyncIterator[Chunk]) -> AsyncIterator[HopPiece]:
        async for chunk in inlet:
            number = self.take_in(chunk)
            start = 0
            while start < len(chunk):
                stop = start + first_share(len(chunk) - start, self._rows_of_a_hop(len(chunk)))
                rows = chunk if stop - start == len(chunk) else chunk.slice(start, stop)
                yield HopPiece(rows, number + start, await self._room_for(rows))
                start = stop

    async def _room_for(self, rows: Chunk) -> Charge | None:
        if self.serial is not None and self.workers == 1 and self.shared is None:
            return None  # serial hops hold at most two results
        return await self._results.room_for(about_nbytes(rows))

    def _rows_of_a_hop(self, chunk_rows: int) -> int:
        # Divide each chunk among all workers, so that none is idle.
        return max(1, min(self.pace.rows, -(-chunk_rows // self.workers)))

    def _learn(self, rows: int, outcome: Outcome, done: Done) -> None:
        largest = max(tally.nbytes for tally in done.tallies)
        # On a busy machine, a thread also waits for a core. More threads would not make this wait shorter.
        self.pace.observe(rows, outcome.busy_s, outcome.cpu_s + done.core.waited_s, self.workers, largest)
        if self.processes is not None and self.pace.row_s > CHEAP_ROW_S and self.pace.holds_gil(self.cpus):
            self._go_over_to(self.processes())
        workers = self.fixed_workers or min(self.pace.workers(self.cpus), MAX_AUTO_THREADS)
        if workers != self.workers:
            self.workers = workers
            self.pace.hop_s = _hop_s(self.place, workers)
            self._widen()

    def _go_over_to(self, place: WorkPlace | None) -> None:
        self.processes = None
        if place is not None:
            self.place, self.serial, self.fixed_workers = place, None, self.cpus
            self.pace.hop_s = _hop_s(place, self.cpus)

    def _widen(self) -> None:
        """Set the limits for running hops (one per worker), queued hops (one per two workers) and finished hops."""
        # With queued hops, the workers do not wait for the event loop between two hops.
        waiting = max(1, self.workers // 2) if self.workers > 1 and self.place.queues_beyond(self.workers) else 0
        running = self.workers + waiting
        self._allow(running, running + (self.workers + 2 if self.workers > 1 else 0))

    def _allow(self, running: int, held: int) -> None:
        """Set the limits of running hops and of unfinished or unsent hops.

        Late hops (calls on workers) are allowed in addition to these limits.
        """
        self._allowed = running, held
        self._late.workers = self.workers
        self.place.queues_beyond(self.workers + len(self._late))
        self._running.limit = running + len(self._late)
        self._held.limit = held + len(self._late)


def first_share(rows: int, most: int) -> int:
    """Return the number of rows of the next hop if ``rows`` rows remain in the chunk.

    The last two hops share their rows evenly. Otherwise, the last hop of many chunks would have only a few rows, and
    the overhead of a hop is as large as the cost of several rows.
    """
    return most if rows >= 2 * most else rows if rows <= most else -(-rows // 2)


def _hop_s(place: WorkPlace, workers: int) -> float:
    """Return the target duration of a hop in seconds, for this executor and number of workers."""
    return LONG_HOP_S if place.is_far or workers > 1 else HOP_S


def _busy(done: Done) -> float:
    return sum(tally.busy_s for tally in done.tallies)


def _cpu(done: Done) -> float:
    return sum(tally.cpu_s for tally in done.tallies)
