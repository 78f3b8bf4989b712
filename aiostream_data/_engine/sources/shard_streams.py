"""Open the shards of one era (shards that were listed together) in order. One task reads each shard."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiostream_data._engine.failures.shard_losses import ShardLosses
from aiostream_data._engine.flow.channel import open_channel
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.merge import Stream
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.flow.task_errors import carrying
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.origins import Namespace
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.numbered_shards import NumberedShards
from aiostream_data._engine.sources.shard_reader import ShardReader
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data.errors import StateMismatchError
from aiostream_data.failing.policies import Handling
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.stores import StoreSet

CHUNKS_PER_SHARD = 2
"""Maximum number of decoded chunks queued per open shard."""


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

    def open(self, number: int, open_at_once: int, given: int = 0, lost: int = 0) -> Stream:
        """Start reading a shard after the first ``given`` emitted rows and ``lost`` skipped records."""
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
    _opened: deque[Stream] = field(default_factory=deque)
    _next: int = 0
    _given: int = 0

    def __post_init__(self) -> None:
        self._places: Sequence[int] = range(len(self.turns))
        if self.run.shards.has_gaps:
            listed = self.run.shards.by_number
            self._places = [place for place in self._places if listed[self.turns[place]] is not None]

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

    async def next(self) -> Stream | None:
        self._open_ahead()
        if not self._opened:
            return None
        self._given += 1
        return self._opened.popleft()

    def drop(self) -> None:
        """Release all references to rows. Stream positions can still be computed afterwards."""
        self._opened.clear()
        del self.run

    def ended(self) -> None:
        self._given -= 1
        self._open_ahead()

    def _open_ahead(self) -> None:
        while self.has_more and self._given + len(self._opened) < self.run.most_open:
            self._opened.append(self.run.open(self.turns[self._places[self._next]], self.at_once))
            self._next += 1


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
