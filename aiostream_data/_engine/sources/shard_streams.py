"""Open the shards of one era (shards that were listed together) in order. One task reads each shard."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from aiostream_data._engine.failures.shard_losses import ShardLosses
from aiostream_data._engine.flow.channel import open_channel
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.merge import ReadyStreams, Stream
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.flow.task_errors import carrying
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.merge_log import StreamPlace
from aiostream_data._engine.resume.origins import Namespace
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.numbered_shards import NumberedShards
from aiostream_data._engine.sources.shard_reader import Content, ShardReader
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data._engine.sources.small_shards import (
    FIRST_SHARDS,
    LOCAL,
    GroupRows,
    ReadAlone,
    SmallShards,
    next_size,
)
from aiostream_data.errors import StateMismatchError
from aiostream_data.failing.policies import Handling
from aiostream_data.formats.base import LEFT
from aiostream_data.metrics.counters import BYTES_WAIT, StageCounters
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.read_ahead import ReadAhead
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.urls import split_url

CHUNKS_PER_SHARD = 2
"""Maximum number of decoded chunks queued per open shard."""

MOST_GROUPS_AHEAD = 16
"""Maximum number of groups of small shards that are read ahead."""


@dataclass(frozen=True)
class SourceRun:
    """Objects that all shard readers of one run of a source share.

    Attributes:
        outlet: Outlet to which the source sends the rows of all shards.
        group: Task group with one task for each open shard.
        handling: Error policy for damaged and missing shards.
    """

    node: ReadFiles
    context: RunContext
    counters: StageCounters
    hop: Callable[..., Any]
    shards: NumberedShards
    namespace: Namespace
    offsets: ShardOffsets
    outlet: Outlet
    group: asyncio.TaskGroup
    stores: StoreSet
    siblings: ShardSiblings
    handling: Handling

    @property
    def most_open(self) -> int:
        """Maximum number of shards that are open at the same time."""
        node = self.node
        ahead = node.read_ahead if isinstance(node.read_ahead, int) else max(1, node.cycle_length // 4)
        return node.cycle_length + ahead

    def small_shards(self) -> SmallShards:
        """Return the reader of groups of small shards."""
        services = self.context.services
        return SmallShards(
            node=self.node,
            stores=self.stores,
            budget=services.budget,
            blocks=services.blocks,
            counters=self.counters,
            hop=self.hop,
            siblings=self.siblings,
            first_split=self.namespace.base,
            offsets=self.offsets,
        )

    def open(
        self,
        number: int,
        open_at_once: int,
        given: int = 0,
        lost: int = 0,
        failure: Exception | None = None,
        content: Content | None = None,
    ) -> Stream:
        """Start reading a shard after the ``given`` rows already emitted and the ``lost`` records already skipped.

        Args:
            failure: Error of an earlier attempt to read the shard, which counts as the first attempt.
            content: Bytes of the shard that an earlier attempt has read.
        """
        shard = self.shards.by_number[number]
        assert shard is not None, "shards that are gone have no turn"
        budget = self.context.services.budget
        sender, receiver = open_channel(CHUNKS_PER_SHARD, budget.channel_nbytes)
        # If the consumer waits for this shard's rows, the shard may exceed a full budget.
        receiver.wanted_for(self.outlet.is_awaited)
        receiver.on_wait = lambda _: budget.poke()
        receiver.counters = self.counters
        losses = ShardLosses(shard.url, self.namespace.base + number, given, lost)
        reader = ShardReader(
            node=self.node,
            shard=shard,
            number=number,
            split=self.namespace.base + number,
            siblings=self.siblings,
            offsets=self.offsets,
            first=given + lost,
            losses=losses,
            handling=self.handling,
            open_at_once=open_at_once,
            stores=self.stores,
            budget=budget,
            blocks=self.context.services.blocks,
            counters=self.counters,
            hop=self.hop,
            is_wanted=lambda: sender.is_awaited,
            failure=failure,
            content=content,
        )
        # Rows are counted when they leave the stage, so the reader's counters are discarded.
        outlet = Outlet(sender, StageCounters("shard"), budget)
        self.group.create_task(_read(reader, outlet), name=f"read {safe_url(shard.url)}")
        place = _ShardPlace(number, self.offsets, losses)
        return Stream(receiver, place, losses if self.handling.kind == "skip" else None)


@dataclass
class ShardStreams:
    """Streams of the shards of one era. The source merges the rows of these streams.

    Attributes:
        turns: Shard numbers, in the order in which the source opens the shards.
        first: Number of shards of the era that come before the shards in ``turns``.
        at_once: Maximum number of shards that the source reads concurrently.
    """

    run: SourceRun
    turns: Sequence[int]
    first: int
    at_once: int
    _ready: deque[Stream | ReadyStreams] = field(default_factory=deque)  # returned next
    _parts: deque[ReadyStreams | ReadAlone] = field(default_factory=deque)  # of the current group, after ``_ready``
    _opened: deque[Stream | _Group] = field(default_factory=deque)  # after ``_parts``
    _next: int = 0
    _given: int = 0
    _streams: int = 0  # open, but not returned yet
    _groups: int = 0  # in ``_opened``
    _ahead: ReadAhead = field(default_factory=ReadAhead)  # in groups
    _group_shards: int = FIRST_SHARDS

    def __post_init__(self) -> None:
        self._places: Sequence[int] = range(len(self.turns))
        if self.run.shards.has_gaps:
            listed = self.run.shards.by_number
            self._places = [place for place in self._places if listed[self.turns[place]] is not None]
        small = self.run.small_shards()
        self._small = small if small.is_possible else None

    @property
    def has_more(self) -> bool:
        """True if some shards of the era have not been opened yet."""
        return self._next < len(self._places)

    def turns_for(self, given: int) -> int:
        """Return the position in the era's shard order after this run has opened ``given`` streams."""
        return self.first + (self._places[given - 1] + 1 if given else 0)

    def left(self, given: int) -> list[int]:
        """Return the shards that are still unopened after this run has opened ``given`` streams."""
        return [self.turns[place] for place in self._places[given:]]

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
        first = self._opened[0] if self._opened else None
        return bool(self._ready or self._parts) or not isinstance(first, _Group) or first.rows.done()

    async def next(self) -> Stream | ReadyStreams | None:
        self._open_ahead()
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
            self._parts += self._parts_of(first, await self._rows_of(first))
        else:
            self._ready.append(first)
        self._opened.popleft()

    def drop(self) -> None:
        """Release all references to rows. Stream positions can still be computed afterwards."""
        self._ready.clear()
        self._parts.clear()
        self._opened.clear()
        self._small = None
        del self.run

    def ended(self) -> None:
        self._given -= 1
        self._open_ahead()

    @property
    def _may_open(self) -> bool:
        return self._given + self._streams < self.run.most_open

    def _open_ahead(self) -> None:
        while self._parts and (self._may_open or isinstance(self._parts[0], ReadyStreams)):
            self._open_part()
        while self.has_more and not self._parts:
            number, shard = self._turn(self._next)
            if self._small is not None and self._small.is_small(shard):
                if self._groups >= self._ahead.ranges:
                    return
                self._opened.append(self._begun_group(self._small))
            elif self._may_open:
                self._opened.append(self._open(number))
                self._next += 1
            else:
                return

    def _open_part(self) -> None:
        """Move the first part of the current group to ``_ready``. Open a shard that must be read alone."""
        part = self._parts.popleft()
        self._ready.append(self._open(*part) if isinstance(part, ReadAlone) else part)

    def _open(self, number: int, failure: Exception | None = None, content: Content | None = None) -> Stream:
        self._streams += 1
        return self.run.open(number, self.at_once, failure=failure, content=content)

    def _turn(self, place: int) -> tuple[int, ShardRef]:
        number = self.turns[self._places[place]]
        shard = self.run.shards.by_number[number]
        assert shard is not None, "shards that are gone have no turn"
        return number, shard

    # -- groups of small shards

    def _begun_group(self, small: SmallShards) -> _Group:
        stop = min(self._next + self._group_shards, len(self._places))
        shards = small.group([self._turn(place) for place in range(self._next, stop)], self._group_shards)
        self._next += len(shards)
        self._groups += 1
        group = _Group(shards)
        group.rows = self.run.group.create_task(
            small.read(shards, lambda: group.is_awaited and self.run.outlet.is_awaited()),
            name=f"read {len(shards)} shards from {safe_url(shards[0][1].url)}",
        )
        return group

    async def _rows_of(self, group: _Group) -> GroupRows:
        """Wait for a group. The number of groups that are read ahead adapts to the waits."""
        self._ahead.took(MOST_GROUPS_AHEAD, was_there=group.rows.done())
        if not group.rows.done():
            self._open_ahead()
            group.is_awaited = True
            self.run.context.services.budget.poke()
            began = perf_counter()
            await asyncio.wait([group.rows])
            self.run.counters.add(BYTES_WAIT, perf_counter() - began)
        self._groups -= 1
        found = group.rows.result()
        if len(group.shards) * 2 > self._group_shards:  # else other limits than the number of shards ended the group
            is_local = split_url(group.shards[0][1].url).scheme == LOCAL
            self._group_shards = next_size(self._group_shards, found.read_s, is_local=is_local)
        return found

    def _parts_of(self, group: _Group, found: GroupRows) -> Iterator[ReadyStreams | ReadAlone]:
        """Yield the streams of a group in order: ready streams, and the shards that must be read alone."""
        numbers = [number for number, _ in group.shards]
        was_read = found.rows != LEFT
        first_row, first = 0, 0
        for place in [*np.flatnonzero(~was_read).tolist(), len(numbers)]:
            if place > first:
                counts = found.rows[first:place]
                stop_row = first_row + int(counts.sum())
                chunk = None if found.chunk is None else found.chunk.slice(first_row, stop_row)
                yield ReadyStreams(chunk, counts, _ShardStarts(numbers[first:place], self.run.offsets))
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
    """

    shards: Sequence[tuple[int, ShardRef]]
    rows: asyncio.Task[GroupRows] = field(init=False)
    is_awaited: bool = False


@dataclass(frozen=True)
class _ShardStarts(Sequence[StreamPlace]):
    """Positions of shards without losses, made on request."""

    numbers: Sequence[int]
    offsets: ShardOffsets

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        return _ShardStart(self.numbers[place], self.offsets)


@dataclass(frozen=True)
class _ShardStart:
    """Position of one shard without losses: its number and the nearest record of known offset."""

    number: int
    offsets: ShardOffsets

    def at(self, given: int, book: BookWriter) -> State:
        return [*self.offsets.before(self.number, given)]

    def forget(self, given: int) -> None:
        pass


@dataclass(frozen=True)
class _ShardPlace:
    """Position in one shard: shard number, nearest record with a known offset, and number of skipped records."""

    number: int
    offsets: ShardOffsets
    losses: ShardLosses

    def at(self, given: int, book: BookWriter) -> State:
        lost = self.losses.before(given)
        return [*self.offsets.before(self.number, given + lost), *([lost] if lost else [])]

    def forget(self, given: int) -> None:
        self.losses.forget(given)


async def _read(reader: ShardReader, outlet: Outlet) -> None:
    with outlet, carrying(outlet):
        await reader.run(outlet)
