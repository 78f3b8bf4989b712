"""Await a user's coroutine function for many rows concurrently, on a fixed set of asyncio tasks.

Creating one asyncio task per row costs more time than most rows need on the event loop. Therefore a fixed pool of tasks
takes rows from the feed one by one. Each task writes the result of a row into an *entry*. The stage that awaits the
function takes entries in row order or in completion order. A task never fails: it stores a row's error in the row's
entry, so the stage can raise errors in row order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import RowIds


@dataclass(slots=True, eq=False)
class AwaitedRow:
    """Input row of a coroutine call, with the result of the call.

    Attributes:
        element: Argument passed to the coroutine function.
        ids: Row ids of all rows of the chunk that contains this row.
        row: Index of the row in the chunk.
        made_of: Ids of the rows that this row was made from.
        number: Sequence number of the row, counted over all rows that the stage received.
        room: Memory reserved for the result.
        chunk: Chunk that contains the row; set only for filters, which emit the row unchanged.
        done: True when the call has finished.
        value: Return value of the call.
        error: Exception that ends the stream at this row, or None.
        failed: Failure record of a skipped or replaced row.
        skipped: True if the row failed and the error policy skips it.
        left_out: True if a filter's predicate returned False for the row.
        busy_s: Duration of the call in seconds, including retries.
        retries: Number of retries.
    """

    element: Any
    ids: RowIds
    row: int
    made_of: MadeOf | None
    number: int
    room: Any = None
    chunk: Chunk | None = None
    done: bool = False
    value: Any = None
    error: BaseException | None = None
    failed: Any = None
    skipped: bool = False
    left_out: bool = False
    busy_s: float = 0.0
    retries: int = 0


class AwaitedRows:
    """Pool of tasks that await a coroutine for each row of a feed.

    This class is not thread-safe: use it only on the event loop's thread.

    Args:
        attempt: Coroutine function that awaits the call for one entry and stores the result in the entry. Raises only
            ``CancelledError``.
        at_once: Maximum number of rows awaited concurrently.
        held: Maximum number of rows in memory, including finished rows that wait for an earlier row.
        ordered: If True, return entries in row order, else in completion order.

    Attributes:
        awaiting: Maps each task to its current entry and to the start time of the call, from ``perf_counter()``. Any
            thread may copy the ``awaiting`` dict.
        stopped: True when the stage is stopping. While ``stopped`` is True, any cancellation of a task comes from the
            engine, not from the user function.
    """

    def __init__(
        self, attempt: Callable[[AwaitedRow], Awaitable[None]], *, at_once: int, held: int, ordered: bool
    ) -> None:
        self._attempt = attempt
        self._at_once = at_once
        self._held = held
        self._ordered = ordered
        self._line: deque[AwaitedRow] = deque()
        self._unfinished = 0
        self._holding = 0
        self._feeding = asyncio.Lock()
        self._at_end = False
        self._failure: BaseException | None = None
        self._changed: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.awaiting: dict[asyncio.Task[Any], tuple[AwaitedRow, float]] = {}
        self.stopped = False

    @property
    def unfinished(self) -> int:
        """Number of rows that tasks are currently awaiting."""
        return self._unfinished

    @property
    def is_ready(self) -> bool:
        """True if :meth:`take` would return without blocking."""
        return bool(self._line) and self._line[0].done

    @property
    def holding(self) -> int:
        """Number of rows read from the feed and not yet returned by :meth:`take`."""
        return self._holding

    def start(self, feed: AsyncIterator[AwaitedRow], group: asyncio.TaskGroup) -> None:
        """Start awaiting the rows of ``feed``. Create more tasks as rows arrive."""
        self._feed = feed
        self._group = group
        self._add_task()

    def stop(self) -> None:
        """Stop assigning rows to tasks.

        Call this method before cancelling the tasks: a user function can swallow a cancellation.
        """
        self.stopped = True

    def take_no_more(self) -> None:
        """Stop reading the feed. Rows already read from the feed are still awaited."""
        if not self._at_end:
            self._end(None)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def drop(self) -> None:
        """Release all rows after the tasks have ended, because a stored exception can keep this object alive."""
        self._line.clear()
        self._tasks.clear()  # a cancelled task keeps its frames, and with them its row
        self._failure = None

    async def take(self) -> list[AwaitedRow]:
        """Wait until at least one entry (row with its result) is finished and can be returned.

        Return all finished entries that can be emitted now, or an empty list at the end of the feed.

        Raises:
            BaseException: The error of the feed, raised after all earlier entries were returned.
        """
        while True:
            entries = self._ready()
            if entries:
                return entries
            if self._at_end and not self._holding:
                if self._failure is not None:
                    raise self._failure
                return []
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed

    def _ready(self) -> list[AwaitedRow]:
        entries: list[AwaitedRow] = []
        line = self._line
        while line and line[0].done:
            entries.append(line.popleft())
        if entries:
            self._holding -= len(entries)
            if self._room is not None and not self._room.done():
                self._room.set_result(None)
        return entries

    def _add_task(self) -> None:
        self._tasks.add(self._group.create_task(self._work(), name="awaited rows"))

    async def _work(self) -> None:
        while not self.stopped and (entry := await self._next()) is not None:
            self.awaiting[_this_task()] = (entry, perf_counter())
            try:
                await self._attempt(entry)
            finally:
                del self.awaiting[_this_task()]
            entry.done = True
            self._unfinished -= 1
            if not self._ordered:
                self._line.append(entry)
            if self._line[0].done:
                self._wake()
            del entry  # release the row while waiting for the next one

    async def _next(self) -> AwaitedRow | None:
        """Return the next row of the feed, or None at its end."""
        async with self._feeding:
            while self._holding >= self._held and not self._at_end:
                self._room = asyncio.get_running_loop().create_future()
                await self._room
            if self._at_end:
                return None
            try:
                entry = await anext(self._feed)
            except StopAsyncIteration:
                self._end(None)
                return None
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - raised by take(), in its turn
                self._end(error)
                return None
        self._holding += 1
        self._unfinished += 1
        if self._ordered:
            self._line.append(entry)
        while len(self._tasks) < min(2 * self._unfinished, self._at_once):  # double the tasks up to the limit
            self._add_task()
        return entry

    def _end(self, failure: BaseException | None) -> None:
        self._at_end = True
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


def _this_task() -> asyncio.Task[Any]:
    # A local variable of _work() would keep a cancelled task and its row alive in a reference cycle.
    task = asyncio.current_task()
    assert task is not None
    return task
