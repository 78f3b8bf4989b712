"""Request the byte ranges of one shard ahead of the reader, and return the ranges in order.

The reader reserves memory before it requests a range. Whole objects are one range, which is requested in several parts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.context import value_of
from aiostream_data._engine.flow.step_sizes import ROW_NBYTES
from aiostream_data._engine.flow.this_task import this_task
from aiostream_data._engine.memory.budget import RANGES, Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.sources.ranges_ahead import RangesAhead
from aiostream_data._native import Alone, Charge
from aiostream_data.errors import ChecksumError, CorruptRecordError
from aiostream_data.executors.base import Outcome
from aiostream_data.formats.base import KnowsLargest
from aiostream_data.formats.long_record import ObjectBuffer
from aiostream_data.formats.record_runs import RecordRun, places_of
from aiostream_data.formats.stream import HEADROOM_NBYTES
from aiostream_data.metrics.counters import BYTES_WAIT, FETCH, FETCHED, FETCHES, StageCounters
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.columns import Column
from aiostream_data.rows.records import ByteRange, ShardRef
from aiostream_data.storage.parallel_read import AT_ONCE, parts_of, read_parts
from aiostream_data.storage.part_size import START
from aiostream_data.storage.ranges import (
    LEAST_NBYTES,
    NEAR_NBYTES_AHEAD,
    growing_sizes,
    plan_ranges,
    range_sizes,
    shared_out,
)
from aiostream_data.storage.read_ahead import LEAST, most_ahead
from aiostream_data.storage.stores import StoreSet

HEADROOM: Final = HEADROOM_NBYTES
"""Maximum size in bytes of the free space in front of each range in its buffer."""

HEADROOM_SHARE: Final = 8
"""The free space takes at most this fraction (1/8) of the size of a range."""

SHARED_RANGES: Final = 3
"""Factor by which ranges are smaller if several sources share the memory limit.

Otherwise, the rows of the first sources could fill the memory while they wait, and the others would have no rows."""

WHOLE_SHARE: Final = 0.25
"""Fraction of the memory limit above which a single-record object must be the only large record in memory."""

WRONG_ATTEMPTS: Final = 3
"""Maximum number of attempts to read an object whose bytes do not match its checksum."""


GROWTH_NBYTES: Final = 1 << 20
"""Number of bytes by which compression may make a whole object longer than its content, at least."""


class Content(NamedTuple):
    """Bytes of a whole shard, with the lease of their block."""

    values: NDArray[np.uint8]
    lease: object


@dataclass(frozen=True, slots=True)
class RangeBlock:
    """Received range.

    Attributes:
        start: Offset of the range in its shard.
        data: Free space of ``headroom`` bytes, then the bytes of the range.
        lease: Memory charge of ``data``.
    """

    start: int
    data: NDArray[np.uint8]
    headroom: int
    lease: object


class RunBlock(NamedTuple):
    """Run of large records that was read.

    Attributes:
        columns: Leaves of the records; None if the run could not be read.
        lease: Memory charge of the leaves.
    """

    run: RecordRun
    columns: tuple[Column, ...] | None
    lease: object


class RecordLease:
    """Memory charge of a buffer, with the exclusive permit if the buffer contains a large record.

    The charge and the permit are released when the last chunk that refers to the buffer is deleted.
    """

    __slots__ = ("__weakref__", "_alone", "_charge")

    def __init__(self, charge: Charge, alone: Alone | None) -> None:
        self._charge = charge
        self._alone = alone


@dataclass(eq=False)
class ShardRanges:
    """Ranges of one shard: planned, in flight, and received.

    Attributes:
        ahead: Distributor of the source's ranges among its shards.
        is_wanted: Returns True if the merge waits for this shard. Its next range may then exceed a full memory limit.
        open_at_once: Number of shards that share the memory limit.
        held: Number of ranges in flight, received or in use. A whole object counts as several ranges.
        is_planned: False until the size of the shard is known.
        has_more: True if the shard has ranges that were not requested yet.
        is_current: True if the rows of the shard are merged now.
        may_cut: Set when the shard may split its ranges.
        last_weight: Number of ranges that the last received range counts as; 0 before the first.
    """

    node: ReadFiles
    shard: ShardRef
    stores: StoreSet
    budget: Budget
    blocks: BlockPool
    counters: StageCounters
    ahead: RangesAhead
    is_wanted: Callable[[], bool]
    open_at_once: int
    held: int = 0
    is_planned: bool = False
    has_more: bool = False
    is_current: bool = False
    may_cut: asyncio.Event = field(default_factory=asyncio.Event)
    _content: Content | None = None
    _group: asyncio.TaskGroup | None = None
    _plan: Iterator[ByteRange | RecordRun] = field(default_factory=lambda: iter(()))
    _next: ByteRange | RecordRun | None = None
    _tasks: deque[tuple[asyncio.Task[Outcome], int, int]] = field(default_factory=deque)  # with weight and bytes
    _in_use: int = 0
    last_weight: int = 0

    @property
    def part_nbytes(self) -> int:
        """Recommended size in bytes of a range request, from measurements of the store."""
        return self._sizes()[1]

    @property
    def first_nbytes(self) -> int:
        """Size in bytes of the first range request of a shard."""
        return self._sizes()[0]

    @asynccontextmanager
    async def reading(
        self, shard: ShardRef, offset: int, content: Content | None, runs: Sequence[RecordRun] = ()
    ) -> AsyncIterator[None]:
        """Request the ranges of a shard from byte ``offset`` on, during the block.

        Args:
            content: Bytes of the shard if they were read before, else None.
            runs: Runs to read instead of ranges.
        """
        self.shard, self._content = shard, content
        self.held = self._in_use = 0
        self._plan = iter(runs) if runs else self._ranges(offset)
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._plan_next()
            self.is_planned = True
            self.ahead.fill()
            try:
                yield
            finally:
                self.stop()

    def stop(self) -> None:
        """Cancel all requests in flight."""
        self._plan, self._group = iter(()), None
        self._plan_next()
        for task, _, _ in self._tasks:
            task.cancel()
        self._tasks.clear()
        self.held = self._in_use
        self._content = None

    async def next(self) -> RangeBlock | RunBlock | None:
        """Wait for the next range or run; None after the last. The caller no longer uses the previous one."""
        if self._tasks or self.has_more:  # the last range counts until its rows were merged
            self.held -= self._in_use
            self._in_use = 0
            self.ahead.fill()
        if not self._tasks and self._next is not None:
            self.begin()
        if not self._tasks:
            return None
        task, weight, nbytes = self._tasks[0]
        began, was_there = perf_counter(), task.done()
        block: RangeBlock | RunBlock = value_of(await task)
        now_s = perf_counter()
        self.counters.add(BYTES_WAIT, now_s - began)
        self._tasks.popleft()
        self._in_use = self.last_weight = weight
        self._note(nbytes, weight, now_s, was_there=was_there)
        self.budget.poke()  # the next range is first in line and may now be urgent
        return block

    def begin(self) -> None:
        """Request the next range."""
        part = self._next
        assert part is not None, "the shard has more ranges"
        assert self._group is not None, "only the block of reading() requests ranges"
        self._plan_next()
        weight = max(1, round(part.nbytes / START)) if self.node.format.whole else 1
        self.held += weight
        task = self._group.create_task(self._outcome(part))
        self._tasks.append((task, weight, part.nbytes))

    def _note(self, nbytes: int, weight: int, now_s: float, *, was_there: bool) -> None:
        window = self.ahead.window
        before = window.ranges
        most = most_ahead(self.budget.limit, self.ahead.sharers, self.part_nbytes)
        if self._is_near:
            most = max(LEAST, min(most, NEAR_NBYTES_AHEAD // max(LEAST_NBYTES, nbytes)))
        is_in_time = was_there or not self.is_current
        window.took(nbytes, now_s, was_there=is_in_time, least=self.ahead.least, most=most, weight=weight)
        if window.ranges > before:
            self.ahead.fill()

    @property
    def _is_near(self) -> bool:
        return self.stores.part_nbytes(self.shard.url) is None

    # -- plan

    def _plan_next(self) -> None:
        self._next = next(self._plan, None)
        self.has_more = self._next is not None

    def _sizes(self) -> tuple[int, int]:
        """Return the sizes in bytes of the first and of later range requests."""
        part_nbytes = self.stores.part_nbytes(self.shard.url)
        open_at_once = self.open_at_once if self.ahead.sharers == 1 else SHARED_RANGES * self.open_at_once
        return range_sizes(self.budget.limit, open_at_once, self.node.spread, part_nbytes)

    def _ranges(self, offset: int) -> Iterator[ByteRange]:
        nbytes = self.shard.nbytes or 0
        if self.node.format.whole and nbytes:
            return iter([ByteRange(0, nbytes)])
        first, part = self._sizes()
        grown: Iterator[int] | None = None
        if self.ahead.window.is_new:
            grown = growing_sizes(first)
        elif not self.node.spread:
            first = part  # the shard was opened ahead: the consumer does not wait for its first row

        def next_size(left_nbytes: int) -> int:
            size = self._sizes()[1]
            if self.ahead.is_last(self):
                size = shared_out(size, left_nbytes, self.ahead.window.ranges)
            return size if grown is None else min(size, next(grown))

        return plan_ranges(nbytes, first, next_size, offset)

    # -- requests

    async def _outcome(self, part: ByteRange | RecordRun) -> Outcome:
        try:
            return Outcome(await self._fetched(part))
        except Exception as error:  # noqa: BLE001 - raised in the range's turn, behind the rows before
            return Outcome(error=error)

    def _fetched(self, part: ByteRange | RecordRun) -> Awaitable[RangeBlock | RunBlock]:
        if isinstance(part, RecordRun):
            return self._fetch_run(part)
        return self._fetch_whole(part) if self.node.format.whole else self._fetch(part)

    def _urgent(self) -> Callable[[], bool]:
        task = this_task()
        return lambda: bool(self._tasks) and self._tasks[0][0] is task() and self.is_wanted()

    async def _fetch(self, part: ByteRange) -> RangeBlock:
        headroom = min(HEADROOM, self.part_nbytes // HEADROOM_SHARE)
        charge = await self.budget.admit(headroom + part.nbytes, self._urgent(), RANGES)
        data = self.blocks.lend(headroom + part.nbytes)
        if self._content is not None:
            data[headroom:] = self._content.values[part.start : part.stop]
        else:
            with self._fetching(part.nbytes):
                await self.stores.read_into(self.shard, part.start, data.data[headroom:])
        return RangeBlock(part.start, data, headroom, RecordLease(charge, None))

    async def _fetch_whole(self, part: ByteRange) -> RangeBlock:
        if self._content is not None:
            return RangeBlock(part.start, self._content.values, 0, self._content)
        self._check_size(part.nbytes)
        urgent = self._urgent()
        is_large = part.nbytes > WHOLE_SHARE * self.budget.limit
        alone = await self.budget.alone(urgent) if is_large else None
        charge = await self.budget.admit(part.nbytes, urgent, RANGES)
        at_once = AT_ONCE if self.ahead.window.is_new else 1
        buffer = ObjectBuffer(part.nbytes)
        with self._fetching(part.nbytes):
            await read_object(self.stores, self.shard, buffer.view, at_once)
        if alone is not None:
            alone.gathered()
        return RangeBlock(part.start, buffer.data(), 0, RecordLease(charge, alone))

    def _check_size(self, nbytes: int) -> None:
        """Refuse an object that is much longer than its format allows before memory is allocated for it.

        A compressed object can be slightly longer than its content. The format checks the content exactly.
        """
        format = self.node.format
        if nbytes < GROWTH_NBYTES or not isinstance(format, KnowsLargest):
            return
        if nbytes > format.largest_nbytes + max(GROWTH_NBYTES, format.largest_nbytes // 64):
            reason = f"the object has {nbytes} bytes, more than the limit of {format.largest_nbytes}"
            raise CorruptRecordError(self.shard.url, 0, reason)

    async def _fetch_run(self, run: RecordRun) -> RunBlock:
        charge = await self.budget.admit(run.nbytes + ROW_NBYTES * run.rows, self._urgent(), RANGES)
        memory = self.blocks.lend_objects(run.values[:, 1].tolist())
        others = np.empty(run.other_nbytes, np.uint8)
        places = places_of(run, [each.view() for each in memory], others.data)
        with self._fetching(run.nbytes):
            if not await self.stores.read_pieces(self.shard, run.start, places):
                return RunBlock(run, None, None)
        return RunBlock(run, run.columns([each.data() for each in memory], others), RecordLease(charge, None))

    @contextmanager
    def _fetching(self, nbytes: int) -> Iterator[None]:
        started = perf_counter()
        yield
        now_s = perf_counter()
        if not self._is_near:  # a file that is partly in the page cache says nothing
            self.ahead.window.arrived(nbytes, now_s - started, now_s)
        self.counters.add(FETCH, now_s - started)
        self.counters.add(FETCHES, 1)
        self.counters.add(FETCHED, nbytes)


async def read_object(stores: StoreSet, shard: ShardRef, buffer: memoryview, at_once: int = AT_ONCE) -> None:
    """Read a complete object into ``buffer``, which has the object's length.

    The function reads large objects in several parallel parts.

    Args:
        at_once: Number of requests among which to divide the object. With 1, objects of at most one and a half
            recommended parts are read with one request.

    Raises:
        ChecksumError: The bytes did not match the store's checksum in ``WRONG_ATTEMPTS`` attempts.
    """
    parts = parts_of(shard, len(buffer), stores.part_nbytes(shard.url), at_once)
    for attempt in range(1, WRONG_ATTEMPTS + 1):
        await read_parts(stores, shard, parts, buffer)
        try:
            await stores.check_parts(shard, buffer, parts)
            return
        except ChecksumError:
            if attempt == WRONG_ATTEMPTS:
                raise
