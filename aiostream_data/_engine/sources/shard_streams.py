"""Open the shards of one era (shards that were listed together) in order, alone or in groups of small ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from aiostream_data._engine.flow.merge import ReadyStreams, Stream
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.sources.group_limits import GroupSize
from aiostream_data._engine.sources.group_rows import NumberedRefs, ReadAlone
from aiostream_data._engine.sources.groups_ahead import GroupsAhead
from aiostream_data._engine.sources.shard_places import ShardStarts
from aiostream_data._engine.sources.shard_ranges import Content
from aiostream_data._engine.sources.small_shards import LOCAL, GroupRows, Rest, SmallShards, scheme_of
from aiostream_data._engine.sources.source_run import SourceRun
from aiostream_data._engine.sources.turns import Turns
from aiostream_data.errors import StateMismatchError
from aiostream_data.formats.base import LEFT
from aiostream_data.metrics.counters import BYTES_WAIT
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import safe_url


@dataclass
class ShardStreams:
    """Streams of the shards of one era. The source merges the rows of these streams.

    Attributes:
        turns: Shards of the era, in the order in which the source opens them.
        at_once: Maximum number of shards that the source reads concurrently.
    """

    run: SourceRun
    turns: Turns
    at_once: int
    _ready: deque[Stream | ReadyStreams] = field(default_factory=deque)  # returned next
    _parts: deque[ReadyStreams | ReadAlone] = field(default_factory=deque)  # of the current group, after ``_ready``
    _opened: deque[Stream | _Group] = field(default_factory=deque)  # after ``_parts``
    _next: int = 0
    _given: int = 0
    _streams: int = 0  # open, but not returned yet

    def __post_init__(self) -> None:
        self._groups = GroupsAhead(self.run.context.crowd)
        self._small = self.run.small_shards()
        if not isinstance(self.run.node.read_ahead, int):
            self.run.ahead.opens_shards_with(self._open_ahead, lambda: self.has_more)

    @property
    def has_more(self) -> bool:
        """True if some shards of the era have not been opened yet."""
        return self._next < len(self.turns)

    async def again(self, state: State, given: int) -> Stream | None:
        number, ordinal, offset, *lost = state
        listed = self.run.shards.by_number
        if not 0 <= number < len(listed):
            raise StateMismatchError(
                [f"the state reads shard number {number}, but the source has {len(listed)} shards"],
                "Restore the shards that the source had when the state was saved.",
            )
        shard = listed[number]
        if shard is None:
            return None
        if shard.nbytes is not None and offset > shard.nbytes:
            raise StateMismatchError(
                [f"the state reads {safe_url(shard.url)} from byte {offset} on, but it has {shard.nbytes} bytes"],
                "Restore the shard.",
            )
        self._given += 1
        self.run.offsets.learn(number, ordinal, offset)
        return self.run.open(number, self.at_once, given, sum(lost))

    @property
    def is_ready(self) -> bool:
        """True if :meth:`next` would not wait."""
        if self._ready or self._parts:
            return True
        if not self._opened:
            return not self.has_more
        first = self._opened[0]
        return not isinstance(first, _Group) or first.rows.done()

    async def next(self) -> Stream | ReadyStreams | None:
        self._open_ahead(is_needed=not (self._ready or self._parts or self._opened))
        if not self._ready and not self._parts and self._opened:
            await self._take_opened()
            self._open_ahead()
        if not self._ready and self._parts:
            self._open_part()
        if not self._ready:
            return None
        found = self._ready.popleft()
        if isinstance(found, Stream):
            self._streams -= 1
            self._given += 1
        return found

    async def _take_opened(self) -> None:
        """Make the first stream or group of ``_opened`` the next one. Wait for a group."""
        first = self._opened[0]
        if isinstance(first, _Group):
            found = await self._rows_of(first)
            self._parts += self._parts_of(first, found)
            self._opened.popleft()
            if found.rest is not None:
                self._opened.appendleft(self._rest_of(found.rest))
        else:
            self._opened.popleft()
            self._ready.append(first)

    def drop(self) -> None:
        """Release all references to rows."""
        self._ready.clear()
        self._parts.clear()
        self._opened.clear()
        self._small = None
        self.run.ahead.opens_no_more()
        del self.run

    def ended(self) -> None:
        self._given -= 1
        self.run.ahead.was_merged()
        self._open_ahead()

    @property
    def _may_open(self) -> bool:
        run = self.run
        return self._given + self._streams < run.most_open or (run.ahead.opens_shards and run.ahead.wants_shards)

    def _open_ahead(self, *, is_needed: bool = False) -> None:
        """Open shards as far ahead as possible.

        Args:
            is_needed: True if the merge needs the next shard now.
        """
        while self._parts and (self._may_open or isinstance(self._parts[0], ReadyStreams)):
            self._open_part()
        while self.has_more and not self._parts:
            number, shard = self._turn(self._next)
            if self._small is not None and self._small.is_small(shard):
                lane = self.run.stores.lane(shard.url)
                if not self._groups.may_begin(shard, lane, is_needed=is_needed):
                    return
                self._opened.append(self._begun_group(self._small, self._groups.next_size(lane)))
                is_needed = False
            elif self._may_open:
                self._opened.append(self._open(number))
                self._next += 1
            else:
                return

    def _open_part(self) -> None:
        """Move the first part of the current group to ``_ready``. Open a shard that must be read alone."""
        part = self._parts.popleft()
        self._ready.append(self._open(*part) if isinstance(part, ReadAlone) else part)

    def _open(
        self,
        number: int,
        shard: ShardRef | None = None,
        failure: Exception | None = None,
        content: Content | None = None,
    ) -> Stream:
        self._streams += 1
        return self.run.open(number, self.at_once, shard=shard, failure=failure, content=content)

    def _turn(self, place: int) -> tuple[int, ShardRef]:
        number = self.turns[place]
        shard = self.run.shards.by_number[number]
        assert shard is not None, "shards that are gone have no turn"
        return number, shard

    def _begun_group(self, small: SmallShards, size: GroupSize) -> _Group:
        shards = small.group(map(self._turn, range(self._next, len(self.turns))), size)
        self._next += len(shards)
        return self._group_of(shards, lambda is_wanted: small.read(shards, is_wanted))

    def _rest_of(self, rest: Rest) -> _Group:
        small = self._small
        assert small is not None, "a group was read"
        return self._group_of(rest.shards, lambda is_wanted: small.read_rest(rest, is_wanted))

    def _group_of(
        self, shards: NumberedRefs, read: Callable[[Callable[[], bool]], Coroutine[Any, Any, GroupRows]]
    ) -> _Group:
        """Start a task that reads a group. Its argument shows whether the consumer waits for the group."""
        assert self._small is not None, "groups are read"
        group = _Group(shards, int(sum(self._small.likely_nbytes(shard) for _, shard in shards)))
        group.rows = self.run.group.create_task(
            read(lambda: group.is_awaited and self.run.outlet.is_awaited()),
            name=f"read {len(shards)} shards from {safe_url(shards[0][1].url)}",
        )
        self._groups.begun(group.rows, len(shards), group.nbytes)
        return group

    async def _rows_of(self, group: _Group) -> GroupRows:
        """Wait for a group. The number of groups that are read ahead adapts to the waits."""
        is_local = scheme_of(group.shards[0][1]) == LOCAL
        self._groups.needs(group.rows, is_local=is_local)
        if not group.rows.done():
            group.is_awaited = True
            self.run.context.services.budget.poke()
            began = perf_counter()
            await self._groups.until_read(group.rows, self._open_ahead)
            self.run.counters.add(BYTES_WAIT, perf_counter() - began)
        found = group.rows.result()
        self._groups.took(len(group.shards), group.nbytes, found.read_s, is_local=is_local)
        return found

    def _parts_of(self, group: _Group, found: GroupRows) -> Iterator[ReadyStreams | ReadAlone]:
        """Yield the streams of a group in order: ready streams, and the shards that must be read alone."""
        numbers = [number for number, _ in group.shards[: len(found.rows)]]
        was_read = found.rows != LEFT
        first_row, first = 0, 0
        for place in [*np.flatnonzero(~was_read).tolist(), len(numbers)]:
            if place > first:
                counts = found.rows[first:place]
                stop_row = first_row + int(counts.sum())
                chunk = None if found.chunk is None else found.chunk.slice(first_row, stop_row)
                yield ReadyStreams(chunk, counts, ShardStarts(numbers[first:place], self.run.offsets))
                first_row = stop_row
            if place < len(numbers):
                yield found.alone[place]
            first = place + 1


@dataclass(eq=False)
class _Group:
    """Consecutive small shards that are read together.

    Attributes:
        shards: Number and reference of each shard.
        rows: Task that reads the shards.
        is_awaited: True while the merge waits for this group.
        nbytes: Number of bytes of the shards, as far as it can be estimated.
    """

    shards: NumberedRefs
    nbytes: int
    rows: asyncio.Task[GroupRows] = field(init=False)
    is_awaited: bool = False
