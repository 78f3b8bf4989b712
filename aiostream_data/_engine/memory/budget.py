"""One budget of bytes for everything a loader holds.

How this works. Bytes enter a pipeline at its sources, so sources *ask* before they request anything
(:meth:`Budget.admit`), and again before they decompress or cut it (:meth:`Budget.room_for_step`). They wait while the
limit is reached. What later stages make of those bytes is only *noted* (:meth:`Budget.charge`): moving forward must
never wait for memory, because moving forward is what frees it. Three things pass over the limit:

- a first admission into an empty budget;
- an *urgent* one, from the reader that the order is waiting for while the readers behind it hold everything. It is for
  one range or one step, whose sizes shrink with the number of open shards;
- a record larger than its shard's share of the limit, alone (:meth:`Budget.alone`). A reader may gather such a record
  only while the order waits for that very shard, so that the record that comes next in order is the one that passes.
  No other is begun before its memory was released. The exception: the consumer waits, and everything between it and
  the reader asks for another record, as zip() and batch() do. Then nothing else can release memory.

A :class:`Charge` ends with the last chunk that holds it as ``lease``. Ending in ``__del__`` is
deliberate: chunks are dropped by any thread, on success, failure and cancellation alike, and the
last reference is exactly the moment when the memory is free.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Protocol

from aiostream_data.rows.records import Chunk, largest_row_nbytes

ADMITTED = 0.625
"""Share of the limit that sources may fill; the rest is for what is being copied, and for the allocator's gaps."""

FILLED = 0.75
"""Share of the limit beyond which stages begin nothing more; the rest is for chunks and batches in the making."""

FLOW = 0.125
"""Share that may be on its way however much buffers keep, or all would go one by one beside a large buffer."""

LEAST_ADMITTED = 0.125
"""Share that sources may fill however large rows are: what the order waits for passes anyway."""

COPIES_OF_A_ROW = 4
"""How often a row may be there at once: as it was read, as a function's argument, its result, and as a column."""


FORGETTING = 0.98
"""Factor by which a remembered largest size fades with every later one."""

CHANNEL_SHARE = 8
"""A channel holds at most this fraction (1/8) of the limit."""

QUEUES = "queues"
"""Holder of what is on its way between stages, or waits for the consumer."""

RANGES = "ranges"
"""Holder of what was asked for and is not yet cut into rows, or rows look into."""

RECORDS = "records being put together"
"""Holder of records of which a part has yet to come."""

WINDOWS = "decompressors"
"""Holder of what decompressors keep: tables, and the window of output that their input may refer to."""

DECODED = "decoded"
"""Holder of rows in memory of their own."""

RESERVED = "reserved"
"""Holder of the most that steps in progress may make: room that is kept free for them, and mostly no memory."""

READ_AHEAD = "interleave"
"""Holder of rows of data sets that user functions made in memory and that wait for their turn."""

RESULTS = "results"
"""Holder of what functions have returned, or are expected to."""

FLOWING = (QUEUES, RANGES, RECORDS, DECODED, RESERVED, READ_AHEAD, RESULTS)
"""Holders of what goes away by going on. All others keep what they have until something else comes."""


class Charge:
    """Bytes noted against a budget until this object is dropped or :meth:`end` is called."""

    __slots__ = ("budget", "holder", "nbytes")

    def __init__(self, budget: Budget, nbytes: int, holder: str = QUEUES) -> None:
        self.budget = budget
        self.holder = holder
        self.nbytes = nbytes

    def resize(self, nbytes: int) -> None:
        """Note another number of bytes from now on."""
        change, self.nbytes = nbytes - self.nbytes, nbytes
        self.budget._note(change, self.holder)

    def end(self) -> None:
        """Give the bytes back now. Idempotent; callable from any thread."""
        self.resize(0)

    def __del__(self) -> None:
        if self.nbytes:
            self.end()


class Alone:
    """The right to gather one record that is larger than its share; ends with the last chunk that holds it as lease."""

    __slots__ = ("_budget", "_is_gathered")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._is_gathered = False
        budget._count_alone(gathering=1, held=1)

    def gathered(self) -> None:
        """Mark the record as complete: it is on its way to the consumer. Callable from any thread."""
        if not self._is_gathered:
            self._is_gathered = True
            self._budget._count_alone(gathering=-1)

    def __del__(self) -> None:
        self.gathered()
        self._budget._count_alone(held=-1)


class MakesWay(Protocol):
    """Something that can be freed for others, and made again."""

    @property
    def nbytes(self) -> int: ...
    def is_wanted(self) -> bool: ...
    def make_way(self) -> None: ...


class Budget:
    """Counts bytes from any thread; lets coroutines of one loop wait for room.

    Attributes:
        limit: Bytes that admissions keep to.
        used, peak: Bytes noted now, and the most at any time.
        holders: The same two numbers by holder.
        consumer_waits: Returns whether the consumer waits for an element and none is ready.
        in_line: Large decompressors, in the order in which they were given memory.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self.holders: dict[str, tuple[int, int]] = {}
        self.wait_s = 0.0
        self.waiting: dict[str, float] = {}  # names of tasks that wait, and perf_counter() when they began
        # Re-entrant: a garbage collection inside the locked region may end another charge.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._left_free = 0
        self.consumer_waits: Callable[[], bool] = lambda: True
        self._gathering = 0  # records that pass alone, and are not complete
        self._alone = 0  # the same, with those that are complete and still held
        self._warned = False
        self.in_line: list[MakesWay] = []
        self.has_warned_of_windows = False
        _budgets.add(self)

    @property
    def channel_nbytes(self) -> int:
        """Most bytes that one channel may hold."""
        return max(1, self.limit // CHANNEL_SHARE)

    @property
    def admitted_nbytes(self) -> int:
        """Most bytes that sources may fill."""
        return int(min(self.limit * ADMITTED, max(self.limit - self._left_free, self.limit * LEAST_ADMITTED)))

    def leave_free(self, nbytes: int) -> None:
        """Record the bytes needed at once to move data that was read. Sources leave room for the recent maximum."""
        self._left_free = max(nbytes, int(FORGETTING * self._left_free))

    @property
    def is_full(self) -> bool:
        """Whether so much is held that what is being made needs the rest."""
        return not self.may_begin(0)

    @property
    def flowing(self) -> int:
        """Bytes that are on their way, and not kept in a buffer."""
        holders = self.holders
        return sum(holders[holder][0] for holder in FLOWING if holder in holders)

    def charge(self, nbytes: int, holder: str = QUEUES) -> Charge:
        """Note ``nbytes`` without waiting."""
        self.warn_of(nbytes)
        self._note(nbytes, holder)
        return Charge(self, nbytes, holder)

    def warn_of(self, nbytes: int) -> None:
        """Warn, once, where a single thing is larger than the limit."""
        if nbytes <= self.limit or self._warned:
            return
        self._warned = True
        warnings.warn(
            f"{nbytes} bytes have to be held at once, more than the memory limit of {self.limit}; "
            "they pass alone, and memory goes over the limit meanwhile",
            RuntimeWarning,
            stacklevel=3,
        )

    def passes(self, chunk: Chunk) -> int:
        """Return the bytes of the largest row of a chunk that is larger than the limit, and warn; 0 where none is."""
        largest = largest_row_nbytes(chunk) if chunk.nbytes > self.limit else 0
        self.warn_of(largest)
        return largest if largest > self.limit else 0

    async def admit(
        self,
        nbytes: int,
        is_urgent: Callable[[], bool] = lambda: False,
        holder: str = QUEUES,
    ) -> Charge:
        """Wait until sources may fill ``nbytes`` more, then note them.

        Args:
            is_urgent: Asked again at each :meth:`poke`; when true the bytes pass over the limit.
        """
        await self.until(lambda: self._fits(nbytes, self.admitted_nbytes) or is_urgent())
        return self.charge(nbytes, holder)

    def room_for(self, nbytes: int, holder: str = RANGES) -> Charge | None:
        """Note bytes that sources may fill now; None where there is no room for them."""
        return self.charge(nbytes, holder) if self.has_room_for(nbytes) else None

    def has_room_for(self, nbytes: int) -> bool:
        """Return whether sources may fill ``nbytes`` more."""
        return self._fits(nbytes, self.admitted_nbytes)

    @property
    def windows_nbytes(self) -> int:
        """Bytes that decompressors hold."""
        return self.holders.get(WINDOWS, (0, 0))[0]

    def windows_fit(self, share: float) -> bool:
        """Return whether decompressors hold at most this fraction of the limit."""
        return self.windows_nbytes <= share * self.limit

    async def until_fits(self, nbytes: int, is_urgent: Callable[[], bool]) -> bool:
        """Wait until stages may fill ``nbytes`` more, or it is urgent; return whether they may."""
        await self.until(lambda: self.may_begin(nbytes) or is_urgent())
        return self.may_begin(nbytes)

    async def room_for_step(self, nbytes: int, is_urgent: Callable[[], bool]) -> Charge:
        """Wait until a source may decompress and cut ``nbytes``, then note them.

        Ranges fill less of the limit than this may, so that what was fetched can be decoded ahead.
        """
        if not self.may_begin(nbytes):
            await self.until_fits(nbytes, is_urgent)
        self._note(nbytes, RESERVED)  # no warning: what a step may make at most is seldom what it makes
        return Charge(self, nbytes, RESERVED)

    async def alone(self, is_wanted: Callable[[], bool]) -> Alone:
        """Wait until a record larger than its share may be gathered.

        Args:
            is_wanted: Whether the order waits for the shard of the record.
        """
        await self.until(lambda: self._gathering == 0 and is_wanted() and (self._alone == 0 or self.consumer_waits()))
        return Alone(self)

    async def until_within(self, is_urgent: Callable[[], bool]) -> None:
        """Wait while nearly all is held that the limit allows, unless it is urgent to make room by going on."""
        await self.until(lambda: not self.is_full or is_urgent())

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, which is asked when bytes were given back, and at each :meth:`poke`."""
        if holds():
            return
        self._loop = loop = asyncio.get_running_loop()
        started = loop.time()
        task = asyncio.current_task()
        name = task.get_name() if task is not None else "a callback"
        self.waiting[name] = perf_counter()
        try:
            while True:
                waiter = loop.create_future()
                self._waiters.append(waiter)
                if holds():  # room may have been made by another thread just before
                    break
                await waiter
                if holds():
                    break
        finally:
            self.waiting.pop(name, None)
        self.wait_s += loop.time() - started

    def poke(self) -> None:
        """Let everybody who waits look again. Call from the loop."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def look_again(self) -> None:
        """Do what :meth:`poke` does, soon. Callable from any thread; costs nothing where nobody waits."""
        if self._waiters and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self.poke)

    def _count_alone(self, gathering: int = 0, held: int = 0) -> None:
        with self._lock:
            self._gathering += gathering
            self._alone += held
        self.look_again()

    def _fits(self, nbytes: int, most: int) -> bool:
        return self.used == 0 or self.used + nbytes <= most

    def may_begin(self, nbytes: int) -> bool:
        """Return whether stages may fill ``nbytes`` more."""
        return self._fits(nbytes, int(FILLED * self.limit)) or self.flowing + nbytes <= FLOW * self.limit

    def _note(self, change: int, holder: str) -> None:
        with self._lock:
            self.used += change
            self.peak = max(self.peak, self.used)
            used, peak = self.holders.get(holder, (0, 0))
            used += change
            self.holders[holder] = (used, max(peak, used))
        if change < 0:
            self.look_again()


_budgets: weakref.WeakSet[Budget] = weakref.WeakSet()


def _renew_locks() -> None:
    """Replace the locks in a forked child: a thread that does not exist there may hold one for ever."""
    for budget in list(_budgets):
        budget._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
