"""Sources that read a store: names of objects, and the records of shards, interleaved."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.carrying import carrying
from aiostream_data._engine.channel import open_channel
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.failed import Failed
from aiostream_data._engine.failures import PartlyDone
from aiostream_data._engine.merge import Merge, Stream
from aiostream_data._engine.merge_log import MergeLog, check_merge
from aiostream_data._engine.origins import Namespace, local
from aiostream_data._engine.places import SKIPPED_ROWS, Place
from aiostream_data._engine.position import State, taken_up
from aiostream_data._engine.recall import outermost
from aiostream_data._engine.shard_losses import ShardLosses
from aiostream_data._engine.shard_offsets import ShardOffsets
from aiostream_data._engine.shard_reader import ShardReader
from aiostream_data._engine.shard_rows import ShardRows, recalled_nbytes
from aiostream_data._engine.shard_search import search_shards
from aiostream_data._engine.shard_siblings import ShardSiblings
from aiostream_data._engine.stages.base import NumberedRows, Stage
from aiostream_data._engine.state_writer import BookWriter
from aiostream_data.errors import PlanError, StateMismatchError
from aiostream_data.lineage import Lineage
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.ranks import of_this_rank
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.policies import handling_of
from aiostream_data.records import Chunk, Items, ShardRef, concat, gather
from aiostream_data.row_ids import SPLIT_MASK, RowIds
from aiostream_data.safe_url import safe_url
from aiostream_data.state_parts import MAX_COUNT
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.urls import split_url
from aiostream_data.transforms.interleave import InterleaveOrder
from aiostream_data.transforms.randomness import permutation
from aiostream_data.transforms.shard_order import even_cycle, shard_order

SHARDS_AT_ONCE = 32
"""Shards of which single records are read at once."""

CHUNKS_PER_SHARD = 2
"""Decoded chunks that an open shard may have ready."""


@dataclass
class ListFilesSource(NumberedRows):
    """Running form of ``ListFiles``."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        shards = await find_shards(self, self.node)
        order = self._order(len(shards))
        if self._first > len(order):
            raise StateMismatchError([f"the state counts {self._first} files, and {len(order)} were found"])
        await outlet.send(self._names(shards, order[self._first :]))

    async def recall(self, lineage: Lineage) -> Chunk:
        shards = await find_shards(self, self.node)
        numbers = local(lineage.ids)[1]
        _numbers_within(numbers, len(shards))
        return self._names(shards, numbers.tolist())

    def _names(self, shards: list[ShardRef], numbers: list[int]) -> Chunk:
        namespace = self.context.namespace(self.node, lambda _: str(self.node.label))
        ids = RowIds.of_source(namespace.base, numbers)
        return Items([shards[number].url for number in numbers], ids)

    def _order(self, count: int) -> list[int]:
        node: ListFiles = self.node
        seed, permuted = node.seed, node.permuted
        order = list(range(count))
        if seed is not None or permuted is not None:
            epoch = self.context.epoch if permuted is None or permuted.reshuffle else 0
            key = self.context.key(node, seed if permuted is None else permuted.seed, "files", epoch)
            order = permutation(key, count).tolist()
        return of_this_rank(order, node.share)


async def find_shards(stage: Stage, node: ListFiles | ReadFiles) -> list[ShardRef]:
    """Return the shards of a source; what was listed when the loader was opened is not listed again."""
    resolved = stage.context.services.resolved.get(node)
    if resolved is not None:
        return resolved
    return await search_shards(stage.context, node)


@dataclass
class ReadFilesSource(Stage):
    """Running form of ``ReadFiles``: one task per open shard, merged in tf.data's interleave order."""

    kind: ClassVar[str] = "files"

    _log: MergeLog = field(default_factory=MergeLog)
    _state: State = None
    _accounted: int = 0

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: ReadFiles = self.node
        self.counters.workers = node.cycle_length
        shards = await self._shards()
        is_local = bool(shards) and split_url(shards[0].url).scheme == "file"
        self.counters.waits_for = "disk" if is_local else "network"
        namespace = self._namespace(shards)
        turns = self._turns(shards)
        order = InterleaveOrder(self._cycle(len(turns)), node.block_length, node.ordered)
        stores = self.context.services.stores(node.storage_options)
        async with asyncio.TaskGroup() as group:
            streams = _ShardStreams(self, turns, shards, namespace, outlet, group, stores)
            merge = Merge(streams, order, self._log, self._account if streams.handling.interferes else None)
            if self._state is not None:
                streams.skip(self._state["next"])
                await merge.resume(self._state)
                if streams.has_more:  # as when shards were appended since
                    order.more_streams()
            await merge.run(outlet)

    async def _account(self, rows: int, lost: list[Failed]) -> None:
        """Count losses against the budget, and log them.

        Args:
            rows: Rows merged before them, in this run.
        """
        rows, self._accounted = rows - self._accounted, rows
        lost = [replace(each, row=rows + number) for number, each in enumerate(lost)]
        letters, context = self.context.services.dead_letters, self.context
        try:
            await letters.take(context.place(self.node), context.nth(self.node), self.node, rows + len(lost), lost)
        except PartlyDone as partly:
            self.counters.skipped += partly.done
            raise
        self.counters.skipped += len(lost)

    # -- its place: the order's, and for every open shard the next record and where it can be found

    def at(self, rows: int, book: BookWriter) -> State:
        found = self._log.at(rows, book)
        if found is None:
            return self._state
        state, opened = found
        first = 0 if self._state is None else self._state["next"]
        return {"op": "files", **state, "next": first + opened}

    def forget(self, rows: int) -> None:
        self._log.forget(rows)

    def resume(self, state: State) -> Sequence[State]:
        self._state = taken_up(state, "files")
        return ()

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "order", "streams", "next")
        cycle = MAX_COUNT if place.node is None or not place.scope.exact else place.node.cycle_length
        shards = None if place.node is None else place.scope.shards.get(place.scope.keys[place.node])
        numbers = set()
        for stream, rows in check_merge(place, fields["order"], fields["streams"], (1, cycle)):
            number, ordinal, offset, *lost = stream.items(3, 4)
            numbers.add(number.integer(0, SPLIT_MASK if shards is None else shards - 1))
            skipped = sum(part.integer(1, SKIPPED_ROWS) for part in lost)
            ordinal.integer(0, min(rows + skipped, offset.integer()))
        most = SPLIT_MASK if shards is None else _of_a_rank(shards, place.node.share)
        all_given = place.scope.exact and shards is not None and not fields["order"].value["more_streams"]
        opened = fields["next"].integer(most if all_given else len(numbers), most)
        if len(numbers) < len(fields["streams"].value):
            raise fields["streams"].refused(f"must be {opened} different shards at most")
        yield from ()

    async def recall(self, lineage: Lineage) -> Chunk:
        node: ReadFiles = self.node
        shards = await self._shards()
        namespace = self._namespace(shards)
        self._learn(lineage)
        splits, ordinals = local(lineage.ids)
        stores = self.context.services.stores(node.storage_options)
        budget = self.context.services.budget
        most_nbytes = recalled_nbytes(budget.limit, SHARDS_AT_ONCE)
        at_once = asyncio.Semaphore(SHARDS_AT_ONCE)
        parts: dict[int, asyncio.Task[Chunk]] = {}

        async def read(number: int, wanted: NDArray[np.int64]) -> Chunk:
            split = namespace.base + number
            rows = ShardRows(node, shards[number], number, split, stores, self._offsets, self.hop, most_nbytes, budget)
            async with at_once:
                return await rows.read(wanted)

        known = _numbers_within(splits, len(shards))
        if (ordinals < 0).any():
            raise StateMismatchError([f"the state names record {int(ordinals.min())} of a shard"])
        async with asyncio.TaskGroup() as group:
            for number in known:
                parts[number] = group.create_task(read(number, np.unique(ordinals[splits == number])))
        return _in_the_order_of(lineage, concat([parts[number].result() for number in known]))

    def _learn(self, lineage: Lineage) -> None:
        """Take over what the state with which the loader was opened knows about where records begin."""
        spaces = {space.base: space for space in outermost(lineage, self.context.services.origins)}
        nothing = np.empty(0, np.int64)
        for space in spaces.values():
            if space.locate is not None and space.locate != self._offsets.locate:
                self._offsets.learn_all(space.locate(nothing, nothing))

    @property
    def _offsets(self) -> ShardOffsets:
        known = self.context.services.offsets
        return known.setdefault((self.context.path, self.context.keys[self.node]), ShardOffsets())

    def _namespace(self, shards: list[ShardRef]) -> Namespace:
        return self.context.namespace(self.node, lambda k: shards[k].url, self._offsets.locate)

    async def _shards(self) -> list[ShardRef]:
        if self.node.files is None:
            return await find_shards(self, self.node)
        urls: list[str] = []
        async with self.context.open(self.node.files) as names:
            async for chunk in names:
                urls += [_as_url(name) for name in chunk.elements()]
        return [ShardRef(url) for url in urls]

    def _turns(self, shards: list[ShardRef]) -> list[int]:
        node: ReadFiles = self.node
        turns = list(range(len(shards)))
        if node.shuffle_shards:
            key = self.context.key(node, node.seed, "shards", self.context.epoch if node.reshuffle else 0)
            if node.spread:
                at_once = node.cycle_length * (node.share[1] if node.share else 1)
                turns = shard_order(key, [shard.nbytes for shard in shards], at_once)
            else:
                turns = permutation(key, len(shards)).tolist()
        return of_this_rank(turns, node.share)

    def _cycle(self, shards: int) -> int:
        node: ReadFiles = self.node
        return even_cycle(shards, node.cycle_length) if node.spread else max(1, min(node.cycle_length, shards))


@dataclass
class _ShardStreams:
    """Opens shards in their turn, some before their turn, each with a task that reads it."""

    stage: ReadFilesSource
    turns: list[int]
    shards: list[ShardRef]
    namespace: Namespace
    outlet: Outlet
    group: asyncio.TaskGroup
    stores: StoreSet
    _opened: deque[Stream] = field(default_factory=deque)
    _next: int = 0
    _given: int = 0

    def __post_init__(self) -> None:
        self.handling = handling_of(self.stage.node.on_error)
        self._siblings = ShardSiblings(self.stage.node, self.shards, self.stores, self.handling.kind == "skip")

    def skip(self, turns: int) -> None:
        """Pass over shards that were given out before a state was taken."""
        self._next = turns

    @property
    def has_more(self) -> bool:
        """Whether shards are left that the order has not taken."""
        return self._next < len(self.turns)

    async def again(self, state: State, given: int) -> Stream:
        number, ordinal, offset, *lost = state
        if not 0 <= number < len(self.shards):
            raise StateMismatchError([f"the state reads shard number {number}, and there are {len(self.shards)}"])
        shard = self.shards[number]
        if shard.nbytes is not None and offset > shard.nbytes:
            raise StateMismatchError(
                [f"the state reads {safe_url(shard.url)} from byte {offset} on, and it has {shard.nbytes}"]
            )
        self._given += 1
        self.stage._offsets.learn(number, ordinal, offset)
        return self._open(number, given, sum(lost))

    async def next(self) -> Stream | None:
        self._open_ahead()
        if not self._opened:
            return None
        self._given += 1
        return self._opened.popleft()

    def ended(self) -> None:
        self._given -= 1
        self._open_ahead()

    def _open_ahead(self) -> None:
        while self._next < len(self.turns) and self._given + len(self._opened) < self._most_open:
            self._opened.append(self._open(self.turns[self._next]))
            self._next += 1

    @property
    def _most_open(self) -> int:
        node: ReadFiles = self.stage.node
        ahead = node.read_ahead if isinstance(node.read_ahead, int) else max(1, node.cycle_length // 4)
        return node.cycle_length + ahead

    def _open(self, number: int, given: int = 0, lost: int = 0) -> Stream:
        services = self.stage.context.services
        node: ReadFiles = self.stage.node
        sender, receiver = open_channel(CHUNKS_PER_SHARD, services.budget.channel_nbytes)
        # Its bytes pass over a full budget while the order waits for it, and the consumer for the order.
        receiver.wanted_for(self.outlet.is_awaited)
        receiver.on_wait = lambda _: services.budget.poke()
        receiver.counters = self.stage.counters
        losses = ShardLosses(given, lost)
        reader = ShardReader(
            node=node,
            shard=self.shards[number],
            number=number,
            split=self.namespace.base + number,
            siblings=self._siblings,
            offsets=self.stage._offsets,
            first=given + lost,
            losses=losses,
            handling=self.handling,
            open_at_once=min(self._most_open, len(self.turns)),
            stores=self.stores,
            budget=services.budget,
            blocks=services.blocks,
            counters=self.stage.counters,
            hop=self.stage.hop,
            is_wanted=lambda: sender.is_awaited,
        )
        # Rows are counted once, when they leave the stage, so the reader's own counters are thrown away.
        outlet = Outlet(sender, StageCounters("shard"), services.budget)
        self.group.create_task(_read(reader, outlet), name=f"read {safe_url(self.shards[number].url)}")
        place = _ShardPlace(number, self.stage._offsets, losses)
        return Stream(receiver, place, losses if self.handling.kind == "skip" else None)


@dataclass(frozen=True)
class _ShardPlace:
    """Where one shard is: its number, the nearest record before its next one that can be found, and what was lost."""

    number: int
    offsets: ShardOffsets
    losses: ShardLosses

    def at(self, given: int, book: BookWriter) -> State:
        lost = self.losses.before(given)
        return [*self.offsets.before(self.number, given + lost), *([lost] if lost else [])]

    def forget(self, given: int) -> None:
        self.losses.forget(given)


def _of_a_rank(shards: int, share: tuple[int, int] | None) -> int:
    """Return how many of the shards a rank reads."""
    return shards if share is None else len(range(share[0], shards, share[1]))


def _numbers_within(splits: NDArray[np.int64], count: int) -> list[int]:
    numbers: list[int] = np.unique(splits).tolist()
    if numbers and not 0 <= numbers[0] <= numbers[-1] < count:
        raise StateMismatchError([f"the state has rows of shard number {numbers[-1]}, and there are {count}"])
    return numbers


def _in_the_order_of(lineage: Lineage, rows: Chunk) -> Chunk:
    """Return rows, which come by shard and record, in the order asked for."""
    splits, ordinals = local(lineage.ids)
    found, which = np.unique(np.stack([splits, ordinals], axis=1), axis=0, return_inverse=True)
    assert len(found) == len(rows)
    return gather([rows], np.zeros(len(lineage), np.int32), which.reshape(-1).astype(np.int64))


async def _read(reader: ShardReader, outlet: Outlet) -> None:
    with outlet, carrying(outlet):
        await reader.run(outlet)


def _as_url(name: object) -> str:
    if isinstance(name, bytes):
        return name.decode()
    if not isinstance(name, str):
        raise PlanError(f"a data set of files must give URLs as str, got {type(name).__name__}")
    return name
