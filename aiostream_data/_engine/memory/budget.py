"""Memory budget: counts all bytes that a loader holds against its memory limit.

How this works. Sources, such as file readers, bring bytes into a pipeline. A source reserves memory before it requests
a byte range (:meth:`Budget.admit`), and again before it decompresses the range or splits it into records
(:meth:`Budget.room_for_step`). The methods :meth:`Budget.admit` and :meth:`Budget.room_for_step` wait while the memory
limit is reached. Later stages only count their bytes (:meth:`Budget.charge`) and never wait, because their work frees
memory. Three kinds of memory reservation may exceed the memory limit:

- The first reservation in an empty memory budget may exceed the limit.
- A reader may make an *urgent* reservation if its rows come next in the order and readers of later rows use all memory.
  An urgent reservation has the size of one byte range or one decompression step. Ranges and steps shrink as more shards
  are open.
- One record at a time may be larger than its shard's share of the memory limit (:meth:`Budget.alone`). A reader may
  collect the bytes of a large record only when the order of rows requires the record's shard next. The next large
  record starts after the memory of the previous large record has been released. The next large record may start earlier
  if the consumer and all earlier stages wait for another record, as with zip() and batch(). While the consumer and all
  earlier stages wait, no other work can release memory.

A :class:`Charge` ends when the last chunk that has the charge as its ``lease`` is deleted. A charge ends when it is
deleted, on purpose: any thread may delete a chunk, after success, failure or cancellation. The memory is free when the
last reference to the chunk is deleted. The native core counts, because an interrupt inside ``__del__`` would be lost.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple, Protocol

from aiostream_data._native import Alone, Charge, Ledger
from aiostream_data.rows.largest_row import largest_row_nbytes
from aiostream_data.rows.records import Chunk

ADMITTED = 0.625
"""Fraction of the memory limit that sources may use.

The rest of the memory limit covers copies in progress and allocator fragmentation.
"""

FILLED = 0.75
"""Fraction of the memory limit above which stages start no new work.

The rest of the memory limit covers chunks and batches in progress.
"""

FLOW = 0.125
"""Fraction of the memory limit that is always available to data in flight, even if large buffers fill the rest."""

LEAST_ADMITTED = 0.125
"""Fraction of the memory limit that is always available to sources, even if later stages need memory for large rows."""

COPIES_OF_A_ROW = 4
"""Maximum number of copies of a row at one time: as read, as a function's argument, as a result, and in a column."""


FORGETTING = 0.98
"""On every call, :meth:`Budget.leave_free` multiplies the maximum that it remembers by this factor."""

CHANNEL_SHARE = 8
"""Fraction (1/8) of the memory limit that the chunks in one channel may use."""

QUEUES = "queues"
"""Memory category: chunks between stages, and elements queued for the consumer."""

RANGES = "ranges"
"""Memory category: requested byte ranges that are not yet split into rows or that rows still refer to."""

RECORDS = "records being put together"
"""Memory category: partially received records."""

WINDOWS = "decompressors"
"""Memory category: memory of decompressors (tables, and the window of earlier output)."""

DECODED = "decoded"
"""Memory category: decoded rows that have their own memory."""

RESERVED = "reserved"
"""Memory category: maximum output of steps in progress.

Memory for steps in progress is reserved in the budget, but most of it is not allocated.
"""

READ_AHEAD = "interleave"
"""Memory category: rows that interleave() reads ahead from in-memory data sets of user functions."""

RESULTS = "results"
"""Memory category: actual and expected results of user functions."""

FLOWING = (QUEUES, RANGES, RECORDS, DECODED, RESERVED, READ_AHEAD, RESULTS)
"""Memory categories of data in flight, which later stages release.

All other memory categories are buffers that keep their data.
"""


class MakesWay(Protocol):
    """Interface of a decompressor that can release its memory for another decompressor and allocate it again later."""

    @property
    def nbytes(self) -> int: ...
    def is_wanted(self) -> bool: ...
    def make_way(self) -> None: ...


class _Need(NamedTuple):
    """Bytes that a coroutine waits for.

    Attributes:
        has_room: Returns True if the budget has room for this number of bytes. It has room for fewer bytes then, too.
        is_urgent: Returns True if the bytes may exceed the limit.
    """

    nbytes: int
    has_room: Callable[[int], bool]
    is_urgent: Callable[[], bool]


class _WaitsForRoom(NamedTuple):
    """A coroutine that waits until ``holds()`` returns True, and the need that ``holds`` stands for, if any."""

    future: asyncio.Future[None]
    holds: Callable[[], bool]
    need: _Need | None


class _FreedRoom:
    """Room that one release of bytes makes for needs.

    All waiters would wake if each of them compared its need with the room alone. Only the first would find the room.
    """

    def __init__(self) -> None:
        self._promised = 0
        self._lacks: dict[Callable[[int], bool], int] = {}  # least number of bytes that did not fit

    def is_there_for(self, need: _Need) -> bool:
        """Return True if a need fits behind the needs before it, or is urgent."""
        nbytes = self._promised + need.nbytes
        fits = nbytes < self._lacks.get(need.has_room, nbytes + 1) and need.has_room(nbytes)
        if not fits:
            self._lacks[need.has_room] = min(nbytes, self._lacks.get(need.has_room, nbytes))
            if not need.is_urgent():
                return False
        self._promised = nbytes
        return True


class Budget(Ledger):
    """Memory budget: a byte counter with a limit.

    Any thread may count bytes; coroutines on one event loop can wait for room.

    Attributes:
        limit: Memory limit in bytes.
        wait_s: Total seconds of all waits for room in the budget.
        consumer_waits: Function that returns True if the consumer waits for an element and no element is ready.
        in_line: Large decompressors, sorted by the time at which they received memory.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(FLOWING)
        self.limit = limit
        self.wait_s = 0.0
        self.waiting: dict[str, float] = {}  # start of each wait in perf_counter() seconds, by task name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: list[_WaitsForRoom] = []
        self._will_poke = False  # scheduled from another thread
        self._pokes_soon = False  # scheduled from the loop
        self._left_free = 0
        self.consumer_waits: Callable[[], bool] = lambda: True
        self._warned = False
        self.in_line: list[MakesWay] = []
        self.has_warned_of_windows = False

    @property
    def channel_nbytes(self) -> int:
        """Maximum number of bytes in one channel."""
        return max(1, self.limit // CHANNEL_SHARE)

    @property
    def admitted_nbytes(self) -> int:
        """Number of bytes in the budget above which sources must wait."""
        return int(min(self.limit * ADMITTED, max(self.limit - self._left_free, self.limit * LEAST_ADMITTED)))

    def leave_free(self, nbytes: int) -> None:
        """Record the number of bytes that later stages need at the same time.

        Sources leave the recent maximum of these byte counts free.
        """
        self._left_free = max(nbytes, int(FORGETTING * self._left_free))

    @property
    def is_full(self) -> bool:
        """True if the budget is so full that stages must not start new work."""
        return not self.may_begin(0)

    def charge(self, nbytes: int, holder: str = QUEUES) -> Charge:
        """Count ``nbytes`` bytes without waiting, and return a charge for these bytes."""
        if nbytes > self.limit:
            self.warn_of(nbytes)
        return Charge(self, nbytes, holder)

    def warn_of(self, nbytes: int) -> None:
        """Issue a warning, only once, if a single object of ``nbytes`` bytes exceeds the memory limit."""
        if nbytes <= self.limit or self._warned:
            return
        self._warned = True
        warnings.warn(
            f"cannot limit memory use: {nbytes} bytes must be held at once, more than the memory limit of {self.limit} "
            "bytes. Raise memory_limit, or make the rows smaller. Otherwise they pass alone, and exceed the limit.",
            RuntimeWarning,
            stacklevel=3,
        )

    def passes(self, chunk: Chunk) -> int:
        """If the chunk's largest row exceeds the limit, warn and return the row's size in bytes; otherwise return 0."""
        largest = largest_row_nbytes(chunk) if chunk.nbytes > self.limit else 0
        self.warn_of(largest)
        return largest if largest > self.limit else 0

    async def admit(
        self,
        nbytes: int,
        is_urgent: Callable[[], bool] = lambda: False,
        holder: str = QUEUES,
    ) -> Charge:
        """Wait until sources may use ``nbytes`` more bytes, then count these bytes.

        Args:
            is_urgent: Function that the budget calls again at each :meth:`poke`. If ``is_urgent`` returns True, the
                bytes may exceed the limit.
        """
        await self._until_room(_Need(nbytes, self.has_room_for, is_urgent))
        return self.charge(nbytes, holder)

    def room_for(self, nbytes: int, holder: str = RANGES) -> Charge | None:
        """If the budget has room, count ``nbytes`` bytes for a source.

        If the budget has no room, return None without waiting.
        """
        return self.charge(nbytes, holder) if self.has_room_for(nbytes) else None

    def has_room_for(self, nbytes: int) -> bool:
        """Return True if sources may use ``nbytes`` more bytes."""
        return self._fits(nbytes, self.admitted_nbytes)

    @property
    def windows_nbytes(self) -> int:
        """Number of bytes that all decompressors use."""
        return self.held_by(WINDOWS)

    def windows_fit(self, share: float) -> bool:
        """Return True if all decompressors together use at most the fraction ``share`` of the memory limit."""
        return self.windows_nbytes <= share * self.limit

    async def until_fits(self, nbytes: int, is_urgent: Callable[[], bool]) -> bool:
        """Wait until ``nbytes`` more bytes fit into the budget or ``is_urgent()`` returns True.

        Return True if the bytes fit.
        """
        await self._until_room(_Need(nbytes, self.may_begin, is_urgent))
        return self.may_begin(nbytes)

    async def _until_room(self, need: _Need) -> None:
        """Wait until the budget has room for a need, or it is urgent."""
        await self.until(lambda: need.has_room(need.nbytes) or need.is_urgent(), need)

    async def room_for_step(self, nbytes: int, is_urgent: Callable[[], bool]) -> Charge:
        """Wait until a source may decompress and split ``nbytes`` bytes, then count these bytes as reserved.

        Decompression has a higher limit than requests for byte ranges, so that received ranges can be decoded early.
        """
        if not self.may_begin(nbytes):
            await self.until_fits(nbytes, is_urgent)
        return Charge(self, nbytes, RESERVED)  # no warning: a step seldom makes its maximum

    async def alone(self, is_wanted: Callable[[], bool]) -> Alone:
        """Wait until a reader may collect the bytes of a record larger than its share of the memory limit.

        Args:
            is_wanted: Function that returns True if the order of rows requires the record's shard next.
        """
        await self.until(lambda: self.gathering == 0 and is_wanted() and (self.passing == 0 or self.consumer_waits()))
        return Alone(self)

    async def until_within(self, is_urgent: Callable[[], bool]) -> None:
        """Wait until the budget is not full or ``is_urgent()`` returns True."""
        await self.until(lambda: not self.is_full or is_urgent())

    async def until(self, holds: Callable[[], bool], need: _Need | None = None) -> None:
        """Wait until the function ``holds`` returns True.

        The budget calls ``holds`` after each release of bytes and at each :meth:`poke`.

        Args:
            need: Bytes that the waiter counts afterwards, if ``holds`` returns True because they fit or are urgent.
        """
        if holds():
            return
        self._loop = loop = asyncio.get_running_loop()
        started = loop.time()
        name = _name_of_task()
        self.waiting[name] = perf_counter()
        waiter = loop.create_future()
        is_over = False
        try:
            while True:
                self._waiters.append(_WaitsForRoom(waiter, holds, need))
                self.is_awaited = True
                if holds():  # another thread may have released bytes before the waiter was registered
                    break
                await waiter
                if holds():
                    break
                waiter = loop.create_future()
                if need is not None:  # the room that poke() promised to it may be enough for another waiter
                    self.look_again()
            is_over = True
        finally:
            waiter.cancel()  # poke() forgets it
            self.waiting.pop(name, None)
            if need is not None and not is_over:
                self.look_again()
        self.wait_s += loop.time() - started

    def poke(self) -> None:
        """Wake the waiters whose conditions now hold. Call from the loop."""
        self._will_poke = self._pokes_soon = False
        waiters, self._waiters = self._waiters, []
        room = _FreedRoom()
        for waiter in waiters:
            if waiter.future.done():
                continue
            if waiter.holds() if waiter.need is None else room.is_there_for(waiter.need):
                waiter.future.set_result(None)
            else:
                self._waiters.append(waiter)
        self.is_awaited = bool(self._waiters)

    def look_soon(self, waits: bool) -> None:
        """Schedule one :meth:`poke` after a receiver began to wait (``waits``), which may make a waiter urgent."""
        if waits and self._waiters and self._loop is not None and not self._pokes_soon:
            self._pokes_soon = True
            self._loop.call_soon(self.poke)

    def look_again(self) -> None:
        """Schedule :meth:`poke` on the event loop if any coroutine waits for room. Callable from any thread."""
        if self._waiters and self._loop is not None and not self._will_poke:
            self._will_poke = True
            try:
                self._loop.call_soon_threadsafe(self.poke)
            except RuntimeError:  # the loop is closed
                pass
            except BaseException:  # a signal handler raised this error before or after the call
                self._will_poke = False
                raise

    def _fits(self, nbytes: int, most: int) -> bool:
        return self.used == 0 or self.used + nbytes <= most

    def may_begin(self, nbytes: int) -> bool:
        """Return True if stages may use ``nbytes`` more bytes."""
        return self._fits(nbytes, int(FILLED * self.limit)) or self.flowing + nbytes <= FLOW * self.limit


def _name_of_task() -> str:
    """Return the name of the current task.

    A local variable with the task would be part of the traceback of a cancelled task. The rows that its frames refer to
    would wait for a garbage collection.
    """
    task = asyncio.current_task()
    return task.get_name() if task is not None else "a callback"
