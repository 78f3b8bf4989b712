"""Open single shards of one run of a source: each with a task, a reader and a channel for its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from aiostream_data._engine.failures.shard_losses import ShardLosses
from aiostream_data._engine.flow.channel import open_channel
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.merge import Stream
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.flow.task_errors import carrying
from aiostream_data._engine.resume.origins import Namespace
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.decodes_ahead import DecodesAhead, most_ahead
from aiostream_data._engine.sources.group_rows import GroupSplitter
from aiostream_data._engine.sources.numbered_shards import NumberedShards
from aiostream_data._engine.sources.ranges_ahead import RangesAhead, most_open
from aiostream_data._engine.sources.shard_places import ShardPlace
from aiostream_data._engine.sources.shard_ranges import Content
from aiostream_data._engine.sources.shard_reader import ShardReader
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data._engine.sources.small_shards import SmallShards
from aiostream_data.failing.policies import Handling
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.stores import StoreSet

CHUNKS_PER_SHARD = 2
"""Maximum number of decoded chunks queued per open shard."""

QUEUED_NBYTES = 128 << 20
"""Maximum bytes of the decoded chunks queued for all open shards together. One chunk of each shard always fits."""


@dataclass(frozen=True)
class SourceRun:
    """Objects that all shard readers of one run of a source share.

    Attributes:
        outlet: Outlet to which the source sends the rows of all shards.
        group: Task group with one task for each open shard.
        handling: Error policy for damaged and missing shards.
        ahead: Distributor of the concurrent range requests among the shards.
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
    ahead: RangesAhead

    @property
    def most_open(self) -> int:
        """Number of shards that are open at the same time and share the memory limit."""
        return most_open(self.node)

    def small_shards(self) -> SmallShards | None:
        """Return the reader of groups of small shards, or None if the memory limit allows no groups."""
        format, services = self.node.format, self.context.services
        splitter = GroupSplitter(self.node, format, services.budget, services.blocks, self.namespace.base, self.offsets)
        small = SmallShards(
            node=self.node,
            stores=self.stores,
            budget=services.budget,
            blocks=services.blocks,
            counters=self.counters,
            hop=self.hop,
            siblings=self.siblings,
            splitter=splitter,
            crowd=self.context.crowd,
            sharers=self.context.sharers,
        )
        return small if small.is_possible else None

    @property
    def _decodes_ahead(self) -> bool:
        """True if records are decoded while the next ones are split off. Otherwise, skipping could not be exact."""
        return not self.handling.interferes

    @cached_property
    def _node_to_split(self) -> ReadFiles:
        """The node without decoders."""
        return replace(self.node, decoders=())

    def open(
        self,
        number: int,
        open_at_once: int,
        given: int = 0,
        lost: int = 0,
        shard: ShardRef | None = None,
        failure: Exception | None = None,
        content: Content | None = None,
    ) -> Stream:
        """Start reading a shard after the ``given`` rows already emitted and the ``lost`` records already skipped.

        Args:
            shard: Reference to the shard if its size was found after the listing.
            failure: Error of an earlier attempt to read the shard, which counts as the first attempt.
            content: Bytes of the shard that an earlier attempt has read.
        """
        shard = shard or self.shards.by_number[number]
        assert shard is not None, "shards that are gone have no turn"
        budget = self.context.services.budget
        queued_nbytes = min(budget.channel_nbytes // self.context.sharers, QUEUED_NBYTES // open_at_once)
        sender, receiver = open_channel(CHUNKS_PER_SHARD, max(1, queued_nbytes))
        # If the consumer waits for this shard's rows, the shard may exceed a full budget.
        receiver.wanted_for(self.outlet.is_awaited)
        receiver.counters = self.counters
        losses = ShardLosses(shard.url, self.namespace.base + number, given, lost)
        decoders = self.node.decoders if self._decodes_ahead else ()
        reader = ShardReader(
            node=self._node_to_split if decoders else self.node,
            shard=shard,
            number=number,
            split=self.namespace.base + number,
            siblings=self.siblings,
            offsets=self.offsets,
            first=given + lost,
            losses=losses,
            handling=self.handling,
            open_at_once=open_at_once * self.context.sharers,
            stores=self.stores,
            budget=budget,
            blocks=self.context.services.blocks,
            counters=self.counters,
            hop=self.hop,
            ahead=self.ahead,
            is_wanted=lambda: sender.is_awaited,
            failure=failure,
            content=content,
            decoders=self.node.decoders,
        )

        def note_wait(is_waiting: bool) -> None:
            if is_waiting:
                reader.is_awaited()
            budget.look_soon(is_waiting)

        receiver.on_wait = note_wait
        # Rows are counted when they leave the stage, so the reader's counters are discarded.
        outlet = Outlet(sender, StageCounters("shard"), budget)
        read: Callable[[], Awaitable[None]] = partial(reader.run, outlet)
        if decoders:
            services = self.context.services
            ahead = DecodesAhead(
                url=shard.url,
                decoders=decoders,
                outlet=outlet,
                submit=services.pool.submit,
                budget=budget,
                counters=self.counters,
                open_at_once=open_at_once * self.context.sharers,
                most=0 if self.context.is_crowded else most_ahead(services.cpus, open_at_once * self.context.crowd),
            )
            reader.send_decoded = ahead.send_decoded
            read = partial(ahead.run, reader.run)
        self.group.create_task(_read(read, outlet), name=f"read {safe_url(shard.url)}")
        place = ShardPlace(number, self.offsets, losses)
        return Stream(receiver, place, losses if self.handling.kind == "skip" else None)


async def _read(read: Callable[[], Awaitable[None]], outlet: Outlet) -> None:
    with outlet, carrying(outlet):
        await read()
