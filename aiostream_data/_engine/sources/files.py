"""Source that reads the records of several shards and interleaves the records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import ClassVar, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.loss_account import LossAccount
from aiostream_data._engine.flow.merge import Merge
from aiostream_data._engine.flow.recall import outermost
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.merge_log import MergeLog, check_merge
from aiostream_data._engine.resume.origins import Namespace, local
from aiostream_data._engine.resume.places import SKIPPED_ROWS, Place
from aiostream_data._engine.resume.position import Log, State, taken_up
from aiostream_data._engine.resume.shard_numbers import Era
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.listed_shards import shard_numbers
from aiostream_data._engine.sources.numbered_shards import NumberedShards
from aiostream_data._engine.sources.ranges_ahead import RangesAhead, most_open, shards_cut_ahead
from aiostream_data._engine.sources.shard_rows import ShardRows, recalled_nbytes
from aiostream_data._engine.sources.shard_search import check_listed, find_shards, listed_digest
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data._engine.sources.shard_streams import ShardStreams
from aiostream_data._engine.sources.shard_turns import (
    LEFT,
    check_left,
    cycle_of,
    needs_turns_left,
    order_of,
    packed_turns,
    turns_left,
)
from aiostream_data._engine.sources.source_run import SourceRun
from aiostream_data._engine.sources.turns import Turns
from aiostream_data.errors import PlanError, StateMismatchError
from aiostream_data.failing.policies import handling_of
from aiostream_data.metrics.counters import BYTES_WAIT, SHARDS, StageCounters
from aiostream_data.plan.ranks import files_of_a_rank
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.id_arrays import SPLIT_MASK
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, ShardRef, concat, gather
from aiostream_data.rows.row_ids import OTHER_PIPELINE
from aiostream_data.rows.shard_table import ShardTableWriter
from aiostream_data.state_fields import MAX_COUNT, Part
from aiostream_data.storage.read_window import ReadWindow
from aiostream_data.storage.urls import split_url
from aiostream_data.transforms.interleave import InterleaveOrder

WHOLE_OBJECTS = 16
"""Number of objects read ahead that are processed before their turn, if each object is one record."""

SHARDS_AT_ONCE = 32
"""Maximum number of shards to read concurrently during a recall (recomputation of single rows)."""


class _EraRun(NamedTuple):
    """One era of a run: the shards listed together, and the log of their merge."""

    era: Era
    turns: Turns
    log: MergeLog
    slots: int


class _Windows(dict[int, ReadWindow]):
    """Number of concurrent ranges of each source of the plan, by its number. The epochs of a loader share it."""


class _Offsets(WeakValueDictionary[tuple[int, int, int | None], ShardOffsets]):
    """Byte offsets of records. Each key of this table identifies a source run and the numbering of its shards.

    The table drops the offsets of a source when the last namespace of the source is deleted.
    """


@dataclass
class ReadFilesSource(Stage):
    """Stage of a ``ReadFiles`` node: reads each open shard in its own task and interleaves the rows as in tf.data.

    The stage first reads the shards listed at the start of the epoch. Shards added later form separate eras. Each era
    has its own shard order.
    """

    kind: ClassVar[str] = "files"

    _runs: Log[_EraRun] = field(default_factory=Log)
    _state: State = None
    _listed: str = ""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: ReadFiles = self.node
        self.counters.workers = node.cycle_length
        began = perf_counter()
        shards = await self._shards()
        present = shards.present
        self.counters.add(BYTES_WAIT, perf_counter() - began)
        describe_source(self.counters, node, present)
        namespace = self._namespace(shards)
        stores = self.context.services.stores(node.storage_options)
        handling = handling_of(node.on_error)
        siblings = ShardSiblings(node, present, stores, handling.kind == "skip")
        async with asyncio.TaskGroup() as group:
            run = SourceRun(
                node=node,
                context=self.context,
                counters=self.counters,
                hop=self.hop,
                shards=shards,
                namespace=namespace,
                offsets=self._offsets,
                outlet=outlet,
                group=group,
                stores=stores,
                siblings=siblings,
                handling=handling,
                ahead=self._ranges_ahead(),
            )
            await self._read_eras(run)

    def _ranges_ahead(self) -> RangesAhead:
        node, context = self.node, self.context
        window = ReadWindow()
        if context.path == 0:  # a function can return millions of data sets, and each is read once
            window = context.services.features.of(_Windows).setdefault(context.keys[node], window)
        near = most_open(node)
        limit, cpus = context.services.budget.limit, context.services.cpus
        cutting = near + (WHOLE_OBJECTS if node.format.whole else shards_cut_ahead(limit, cpus, context.crowd))
        return RangesAhead(window, node.cycle_length, near, cutting, context.sharers)

    async def _read_eras(self, run: SourceRun) -> None:
        node, state, rows = run.node, self._state, 0
        account = LossAccount(run.context, node, run.counters) if run.handling.kind == "skip" else None
        for era in run.shards.eras[0 if state is None else state.get("era", 0) :]:
            turns = order_of(self.context, node, run.shards.by_number, era)
            slots = cycle_of(node, len(turns))
            first, left = turns_left(turns, state)
            own = Turns(left, first, run.shards.by_number if run.shards.has_gaps else None)
            streams = ShardStreams(run, own, min(run.most_open, len(turns)))
            order = InterleaveOrder(slots, node.block_length, node.ordered)
            if account is not None:
                account.rows_before = rows
            merge = Merge(streams, order, MergeLog(), account)
            merge.pool = self.context.services.blocks
            merge.works_ahead = not self.context.services.workers.one_at_a_time
            self._runs.add(rows, _EraRun(era, own, merge.log, slots))
            if state is not None:
                await merge.resume(state)
                if streams.has_more:
                    order.more_streams()
            try:
                await merge.run(run.outlet)
            finally:
                streams.drop()
            rows, state = rows + merge.rows, None

    # -- saved position: the merge order, and the next record of each open shard with its byte offset

    def at(self, rows: int, book: BookWriter) -> State:
        found = self._runs.find(rows)
        if found is None:
            return self._state
        start, run = found
        merged = run.log.at(rows - start, book)
        if merged is None and start == 0:
            return self._state
        if merged is None:
            merged = {"order": InterleaveOrder(run.slots).state(), "streams": []}, 0
        state, opened = merged
        state = {"op": "files", **state, "next": run.turns.next_after(opened)}
        if run.era.number:
            state["era"] = run.era.number
        if self._listed:
            state["listed"] = self._listed
        if needs_turns_left(self.node, run.era):
            state[LEFT] = packed_turns(run.turns.left(opened))
        return state

    @classmethod
    def state_in_first_shard(cls, node: ReadFiles, total: int, rows: int) -> State:
        """Return the state of a source with one shard of ``total`` rows after its first ``rows`` rows.

        A run continues by reading the shard again from its start.
        """
        order = InterleaveOrder(cycle_of(node, 1), node.block_length, node.ordered)
        order.add_ready(0, np.array([total], np.int64))
        reached = order.after(order.mark(), rows).state()
        streams = [[0, 0, 0] for given in reached["given"] if given is not None]
        return {"op": cls.kind, "order": reached, "streams": streams, "next": 1}

    def forget(self, rows: int) -> None:
        found = self._runs.find(rows)
        if found is not None:
            start, run = found
            run.log.forget(rows - start)
            self._runs.forget(rows)

    def resume(self, state: State) -> Sequence[State]:
        self._state = taken_up(state, "files")
        self._listed = self._state.get("listed", "")
        return ()

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "order", "streams", "next", optional=("era", "listed", LEFT))
        cycle = MAX_COUNT if place.node is None or not place.scope.exact else place.node.cycle_length
        eras = place.shard_eras
        total = SPLIT_MASK + 1 if eras is None else sum(era.count for era in eras)
        numbers = set()
        for stream, rows in check_merge(place, fields["order"], fields["streams"], (1, cycle)):
            number, ordinal, offset, *lost = stream.items(3, 4)
            numbers.add(number.integer(0, total - 1))
            skipped = sum(part.integer(1, SKIPPED_ROWS) for part in lost)
            ordinal.integer(0, min(rows + skipped, offset.integer()))
        era = _era_in(fields, eras)
        most = SPLIT_MASK if era is None else files_of_a_rank(era.count, place.node.share)
        has_gaps = place.numbers is not None  # removed shards have no streams
        all_given = place.scope.exact and era is not None and not fields["order"].value["more_streams"]
        opened = fields["next"].integer(most if all_given and not has_gaps else len(numbers), most)
        if len(numbers) < len(fields["streams"].value):
            raise fields["streams"].refused(f"must contain different shards, at most {opened}")
        if "listed" in fields:
            fields["listed"].text()
        if LEFT in fields:
            check_left(fields[LEFT], era)
        yield from ()

    async def recall(self, lineage: Lineage) -> Chunk:
        node: ReadFiles = self.node
        shards = await self._shards()
        check_listed(lineage, self.context, node, self._listed)
        namespace = self._namespace(shards)
        self._learn(lineage)
        splits, ordinals = local(lineage.ids)
        stores = self.context.services.stores(node.storage_options)
        budget = self.context.services.budget
        most_nbytes = recalled_nbytes(budget.limit, SHARDS_AT_ONCE)
        at_once = asyncio.Semaphore(SHARDS_AT_ONCE)
        parts: dict[int, asyncio.Task[Chunk]] = {}

        async def read(number: int, shard: ShardRef, wanted: NDArray[np.int64]) -> Chunk:
            split = namespace.base + number
            rows = ShardRows(node, shard, number, split, stores, self._offsets, self.hop, most_nbytes, budget)
            async with at_once:
                return await rows.read(wanted)

        known = {number: shards.read_before(number) for number in np.unique(splits).tolist()}
        if (ordinals < 0).any():
            raise StateMismatchError([f"a row id refers to record {int(ordinals.min())} of a shard"], OTHER_PIPELINE)
        async with asyncio.TaskGroup() as group:
            for number, shard in known.items():
                parts[number] = group.create_task(read(number, shard, np.unique(ordinals[splits == number])))
        return _in_the_order_of(lineage, concat([parts[number].result() for number in known]))

    def _learn(self, lineage: Lineage) -> None:
        """Copy known byte offsets of records from the saved state into the run's offset table."""
        spaces = {space.base: space for space in outermost(lineage, self.context.services.origins)}
        nothing = np.empty(0, np.int64)
        for space in spaces.values():
            if space.locate is not None and space.locate != self._offsets.locate:
                self._offsets.learn_all(space.locate(nothing, nothing))

    @property
    def _offsets(self) -> ShardOffsets:
        context, numbers = self.context, shard_numbers(self.context, self.node)
        place = context.path, context.keys[self.node], None if numbers is None else numbers.epoch
        return context.services.features.of(_Offsets).setdefault(place, ShardOffsets())

    def _namespace(self, shards: NumberedShards) -> Namespace:
        return self.context.namespace(self.node, shards.name, self._offsets.locate, self._listed)

    async def _shards(self) -> NumberedShards:
        found = await self._found()
        self._listed = await listed_digest(self.context, self.node, found, self._listed)
        return NumberedShards.of(found, shard_numbers(self.context, self.node))

    async def _found(self) -> Sequence[ShardRef]:
        if self.node.files is None:
            return await find_shards(self.context, self.node)
        found = ShardTableWriter()
        async with self.context.open(self.node.files) as names:
            async for chunk in names:
                for name in chunk.elements():
                    found.add(_as_url(name), None, "")
        return found.table()


def describe_source(counters: StageCounters, node: ReadFiles, shards: Sequence[ShardRef]) -> None:
    """Tell reports how many shards a source reads, what it waits for, and the kind of its CPU work.

    The shard reader reports decompression separately.
    """
    counters.extra[SHARDS] = len(shards)
    is_local = bool(shards) and split_url(shards[0].url).scheme == "file"
    counters.waits_for = "disk" if is_local else "network"
    counters.work = counters.work or ("parse" if node.decoders and not node.format.whole else "cut records")


def _era_in(fields: Mapping[str, Part], eras: Sequence[Era] | None) -> Era | None:
    """Return the era (group of shards listed together) of a saved position, or None if no eras are known."""
    number = fields["era"].integer(1, 0 if eras is None else len(eras) - 1) if "era" in fields else 0
    return None if eras is None else eras[number]


def _in_the_order_of(lineage: Lineage, rows: Chunk) -> Chunk:
    """Reorder ``rows``, sorted by shard and record, to match the order of ``lineage``."""
    splits, ordinals = local(lineage.ids)
    found, which = np.unique(np.stack([splits, ordinals], axis=1), axis=0, return_inverse=True)
    assert len(found) == len(rows)
    return gather([rows], np.zeros(len(lineage), np.int32), which.reshape(-1).astype(np.int64))


def _as_url(name: object) -> str:
    if isinstance(name, bytes):
        return name.decode()
    if not isinstance(name, str):
        raise PlanError(f"elements of a dataset of files must be URLs as str, got {type(name).__name__}")
    return name
