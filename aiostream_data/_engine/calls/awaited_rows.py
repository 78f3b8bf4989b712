"""Await a coroutine for many rows at a time, on tasks that live as long as the stage does.

How this works. A task per row would cost more than most rows' own work on the loop, so there are as many
tasks as rows may be awaited at once, and each takes one row after another from the feed. What they give goes into
*entries*, which the stage takes out in order, or as they are ready. Tasks never fail: whatever a row ends with is
in its entry, so that errors, too, come in their row's turn.
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
    """One row: what it is, and what became of it.

    Attributes:
        element, ids, made_of: The row; ``ids`` are those of all rows of its chunk, and ``row`` is its place there.
        number: Of the row among those that the stage took in.
        room: What is noted against the budget for its result.
        chunk: The chunk that it is a row of, where it is given on as it is.
        done: Whether it has ended.
        value: What it gave.
        error: What it failed with instead.
        failed: Told of it when it was skipped or replaced.
        skipped: It gave nothing, as it failed.
        left_out: It gave nothing, as the predicate said.
        busy_s: Seconds it took.
        retries: Further attempts.
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
    """Rows in, entries out. Loop thread only.

    Args:
        attempt: Awaits one row and puts what it ended with into its entry; raises nothing but its cancellation.
        at_once: Rows that are awaited at a time.
        held: Rows that are held, those included that wait for their turn.
        ordered: Entries come out in the order of the rows; else as they end.

    Attributes:
        awaiting: The row that each task awaits, and ``perf_counter()`` when it began; may be copied from any thread.
        stopped: From here on a cancellation of the tasks comes from outside, not from the function that they await.
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
        """Rows that are being awaited."""
        return self._unfinished

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`take` would give an entry without waiting."""
        return bool(self._line) and self._line[0].done

    @property
    def holding(self) -> int:
        """Rows that were taken in and have not been taken out."""
        return self._holding

    def start(self, feed: AsyncIterator[AwaitedRow], group: asyncio.TaskGroup) -> None:
        """Begin to await what the feed gives. Tasks are added as rows come."""
        self._feed = feed
        self._group = group
        self._add_task()

    def stop(self) -> None:
        """Stop handing out rows, before the tasks are cancelled: a function may swallow the cancellation."""
        self.stopped = True

    def take_no_more(self) -> None:
        """Take no further row from the feed; those that were taken are awaited."""
        if not self._at_end:
            self._end(None)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def drop(self) -> None:
        """Release all rows, when the tasks have ended: an error that is kept may lead here."""
        self._line.clear()
        self._tasks.clear()  # one that was cancelled keeps where it was, with the row
        self._failure = None

    async def take(self) -> list[AwaitedRow]:
        """Wait for entries whose turn it is and take them all out; an empty list after the last.

        Raises:
            BaseException: What the feed failed with, after all entries before.
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
            del entry  # waiting for the next must not hold this one's row

    async def _next(self) -> AwaitedRow | None:
        """Take the next row from the feed, in order; None at its end."""
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
        while len(self._tasks) < min(2 * self._unfinished, self._at_once):  # as many again, until there are enough
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
    # Asked for again, since a variable with it would keep a task that was cancelled, and its row, in a cycle.
    task = asyncio.current_task()
    assert task is not None
    return task
