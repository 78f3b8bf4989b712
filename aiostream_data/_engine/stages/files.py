"""Sources that read a store: names of objects, and the records of shards, interleaved."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiostream_data._engine.channel import Receiver, open_channel
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.merge import merge
from aiostream_data._engine.origins import Namespace
from aiostream_data._engine.shard_reader import ShardReader
from aiostream_data._engine.stages.base import Stage
from aiostream_data.errors import PlanError
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.records import Chunk, Items, ShardRef, run_of_ids
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.urls import split_url
from aiostream_data.transforms.interleave import InterleaveOrder
from aiostream_data.transforms.randomness import permutation

CHUNKS_PER_SHARD = 2
"""Decoded chunks that an open shard may have ready."""


@dataclass
class ListFilesSource(Stage):
    """Running form of ``ListFiles``."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: ListFiles = self.node
        shards = await find_shards(self, node)
        order = range(len(shards))
        if node.seed is not None:
            order = permutation(self.context.key(node, node.seed, "files", self.context.epoch), len(shards)).tolist()
        namespace = self.context.namespace(node, lambda _: node.label)
        await outlet.send(Items([shards[k].url for k in order], run_of_ids(namespace.base, 0, len(shards))))


async def find_shards(stage: Stage, node: ListFiles | ReadFiles) -> list[ShardRef]:
    """Return the shards of a source; what was listed when the loader was opened is not listed again."""
    resolved = stage.context.services.resolved.get(node)
    if resolved is not None:
        return resolved
    return await stage.context.services.stores(node.storage_options).glob(list(node.patterns))


@dataclass
class ReadFilesSource(Stage):
    """Running form of ``ReadFiles``: one task per open shard, merged in tf.data's interleave order."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: ReadFiles = self.node
        self.counters.workers = node.cycle_length
        shards = await self._shards()
        is_local = bool(shards) and split_url(shards[0].url).scheme == "file"
        self.counters.waits_for = "disk" if is_local else "network"
        namespace = self.context.namespace(node, lambda k: shards[k].url)
        order = InterleaveOrder(min(node.cycle_length, max(1, len(shards))), node.block_length, node.ordered)
        stores = self.context.services.stores(node.storage_options)
        async with asyncio.TaskGroup() as group:
            streams = _ShardStreams(self, self._turns(shards), shards, namespace, group, stores)
            await merge(streams, order, outlet)

    async def _shards(self) -> list[ShardRef]:
        if self.node.files is None:
            return await find_shards(self, self.node)
        urls: list[str] = []
        async with self.context.open(self.node.files) as names:
            async for chunk in names:
                urls += [_as_url(name) for name in chunk.elements()]
        return [ShardRef(url) for url in urls]

    def _turns(self, shards: list[ShardRef]) -> list[int]:
        if not self.node.shuffle_shards:
            return list(range(len(shards)))
        key = self.context.key(self.node, self.node.seed, "shards", self.context.epoch)
        turns: list[int] = permutation(key, len(shards)).tolist()
        return turns


@dataclass
class _ShardStreams:
    """Opens shards in their turn, some before their turn, each with a task that reads it."""

    stage: ReadFilesSource
    turns: list[int]
    shards: list[ShardRef]
    namespace: Namespace
    group: asyncio.TaskGroup
    stores: StoreSet
    _opened: deque[Receiver[Chunk]] = field(default_factory=deque)
    _next: int = 0
    _given: int = 0

    async def next(self) -> Receiver[Chunk] | None:
        self._open_ahead()
        if not self._opened:
            return None
        self._given += 1
        return self._opened.popleft()

    def ended(self) -> None:
        self._given -= 1
        self._open_ahead()

    def _open_ahead(self) -> None:
        node: ReadFiles = self.stage.node
        ahead = node.read_ahead if isinstance(node.read_ahead, int) else max(1, node.cycle_length // 4)
        while self._next < len(self.turns) and self._given + len(self._opened) < node.cycle_length + ahead:
            self._opened.append(self._open(self.turns[self._next]))
            self._next += 1

    def _open(self, number: int) -> Receiver[Chunk]:
        services = self.stage.context.services
        node: ReadFiles = self.stage.node
        sender, receiver = open_channel(CHUNKS_PER_SHARD, services.budget.channel_nbytes)
        wanted = _Wanted(self)
        receiver.on_wait = wanted.set
        receiver.counters = self.stage.counters
        reader = ShardReader(
            node=node,
            shard=self.shards[number],
            split=self.namespace.base + number,
            stores=self.stores,
            budget=services.budget,
            blocks=services.blocks,
            counters=self.stage.counters,
            hop=self.stage.hop,
            is_wanted=wanted,
        )
        # Rows are counted once, when they leave the stage, so the reader's own counters are thrown away.
        outlet = Outlet(sender, StageCounters("shard"), services.budget)
        self.group.create_task(_read(reader, outlet), name=f"read {self.shards[number].url}")
        return receiver


@dataclass
class _Wanted:
    """Whether the order waits for one stream; tells the budget when that begins."""

    streams: _ShardStreams
    waiting: bool = False

    def set(self, waiting: bool) -> None:
        self.waiting = waiting
        if waiting:
            self.streams.stage.context.services.budget.poke()

    def __call__(self) -> bool:
        return self.waiting


async def _read(reader: ShardReader, outlet: Outlet) -> None:
    with outlet:
        await reader.run(outlet)


def _as_url(name: object) -> str:
    if isinstance(name, bytes):
        return name.decode()
    if not isinstance(name, str):
        raise PlanError(f"a data set of files must give URLs as str, got {type(name).__name__}")
    return name
