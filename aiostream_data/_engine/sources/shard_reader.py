"""Read one shard: prefetch its byte ranges, split the ranges into records, decode the records, and send chunks.

Memory accounting: The reader reserves memory before it requests a byte range, and before each step that decompresses or
splits data. The memory of a step is known in advance, because one step creates at most one block and one column
(:class:`.stream.StreamStep`). The reader releases this reservation after the step's call on a worker thread. Each chunk
then holds memory leases on the block that contains its rows, and on its own index, ids and arrays. The reader's memory
also includes partially received records, the decompressor, and the decompressor's window of previous output.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol, TypeVar

from aiostream_data._engine.failures.shard_losses import MOST_AT_ONCE, ShardLosses
from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.step_sizes import (
    block_nbytes,
    headroom_nbytes,
    hop_nbytes,
    large_record_nbytes,
    rows_of_a_step,
)
from aiostream_data._engine.memory.budget import COPIES_OF_A_ROW, RANGES, RECORDS, Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.memory.decompressor_memory import DecompressorMemory, DecompressorTaken
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.listed_objects import check_same
from aiostream_data._engine.sources.ranges_ahead import RangesAhead
from aiostream_data._engine.sources.shard_check import ShardCheck
from aiostream_data._engine.sources.shard_chunks import stream_before
from aiostream_data._engine.sources.shard_cutter import ShardCutter
from aiostream_data._engine.sources.shard_damage import Damage, damage_of
from aiostream_data._engine.sources.shard_ranges import Content, RangeBlock, ShardRanges
from aiostream_data._engine.sources.shard_runs import finder_of, send_runs
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data.errors import CorruptRecordError, MemoryBudgetError, StateMismatchError
from aiostream_data.failing.policies import Handling
from aiostream_data.formats.cutting import no_records
from aiostream_data.formats.record_limit import RecordLimit
from aiostream_data.formats.stream import RecordStream, StreamStep
from aiostream_data.metrics.counters import BYTES_WAIT, StageCounters
from aiostream_data.plan.base import Decoder
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, ShardRef, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.stores import StoreSet

T = TypeVar("T")


class RecordSink(Protocol):
    """Receiver of the rows of a shard, such as an :class:`.Outlet`."""

    async def send(self, chunk: Chunk) -> None:
        """Send a chunk of rows."""

    async def send_mark(self, chunk: Chunk) -> None:
        """Send a chunk without rows, which signals lost records."""


@dataclass
class ShardReader:
    """Reader of one shard during one run of a source.

    Attributes:
        number: Number of the shard within its source.
        split: Split number, the part of the row ids that identifies the shard.
        siblings: Other shards of the source. The reader uses these shards if this shard is too short to detect its
            compression.
        offsets: Known byte offsets of records. The reader adds the offsets of records that it finds.
        losses: Object that receives the skipped records.
        handling: Error policy for damaged records and damaged shards.
        first: Number of the first record that the reader sends.
        open_at_once: Number of shards that are read at the same time and share the memory limit.
        ahead: Distributor of the source's concurrent range requests among its shards.
        is_wanted: Returns True if the merge waits for this shard. The reader may then exceed a full memory limit,
            because all rows that fill it are queued behind this shard.
        failure: Error of an earlier attempt to read the shard, which counts as the first attempt; else None.
        content: Bytes of the whole shard if an earlier attempt has read them, for the first attempt only; else None.
        decoders: Decoders of the records, whether the reader or its sink decodes them.
        send_decoded: Function that sends rows past a sink that decodes records; None if the sink takes decoded rows.
    """

    node: ReadFiles
    shard: ShardRef
    number: int
    split: int
    siblings: ShardSiblings
    stores: StoreSet
    budget: Budget
    blocks: BlockPool
    counters: StageCounters
    hop: Callable[..., Any]
    offsets: ShardOffsets
    ahead: RangesAhead
    is_wanted: Callable[[], bool] = lambda: False
    first: int = 0
    open_at_once: int = 1
    losses: ShardLosses = field(default_factory=ShardLosses)
    handling: Handling = field(default_factory=Handling)
    failure: Exception | None = None
    content: Content | None = None
    decoders: Sequence[Decoder] = ()
    send_decoded: Callable[[Chunk], Awaitable[None]] | None = None
    _reserved_nbytes: int = 0  # for a large record of known size
    _attempts: int = 0  # retries at the current damage
    _is_checking: bool = False

    def __post_init__(self) -> None:
        self._skips = self.handling.kind == "skip" and not self.handling.retries
        self.ranges = ShardRanges(
            node=self.node,
            shard=self.shard,
            stores=self.stores,
            budget=self.budget,
            blocks=self.blocks,
            counters=self.counters,
            ahead=self.ahead,
            is_wanted=self.is_wanted,
            open_at_once=self.open_at_once,
        )
        self.ahead.add(self.ranges)

    def is_awaited(self) -> None:
        """Note that the merge waits for the next rows of the shard."""
        self.ahead.is_awaited(self.ranges)

    async def run(self, outlet: RecordSink) -> None:
        """Send the rows of the shard, in order, starting with row number ``first``.

        Raises:
            CorruptRecordError: The data of the shard is damaged.
            ExampleParseError: A record cannot be parsed as an Example message.
            StorageError: The shard cannot be read.
            MemoryBudgetError: Decompression makes a record that does not fit into the memory limit.
            ChecksumError: The bytes do not match the store's checksum. The reader raises this error before it sends the
                last rows.
        """
        self._waiting, self._memory = self.budget.charge(0, RECORDS), DecompressorMemory(self.budget, self.is_wanted)
        self._cutter = self._new_cutter()
        try:
            while not await self._has_sent_all(outlet):
                self.first = max(self.first, self._cutter.row)
                self.content = None
                self._reserved_nbytes = 0
                self._cutter = self._new_cutter()
                self._waiting.end()
                self._memory.release()
        finally:
            self.ahead.has_sent(self.ranges, self.ranges.last_weight)
            self._memory.release()
            self._cutter.alone = None
            self._waiting.end()

    def _new_cutter(self) -> ShardCutter:
        return ShardCutter(
            node=self.node,
            url=self.shard.url,
            number=self.number,
            split=self.split,
            offsets=self.offsets,
            budget=self.budget,
            blocks=self.blocks,
            memory=self._memory,
            waiting=self._waiting,
            first=self.first,
        )

    async def _has_sent_all(self, outlet: RecordSink) -> bool:
        """Read the shard from row ``first``. Return False if the shard must be read again."""
        try:
            failure, self.failure = self.failure, None
            if failure is not None:
                raise failure
            if self.shard.nbytes is None:
                began = perf_counter()
                self.shard = await self.stores.info(self.shard.url)
                self.counters.add(BYTES_WAIT, perf_counter() - began)
            elif not self.shard.nbytes:  # no range is requested, so no answer shows that the object has changed
                check_same(self.shard, await self.stores.info(self.shard.url))
            await self._read(outlet)
        except DecompressorTaken:
            return False
        except Exception as error:
            damage = damage_of(error, delivers_later=self.node.format.whole or self._is_checking)
            if damage is None or not self.handling.interferes:
                raise
            return await self._is_done_with(damage, error)
        return True

    async def _is_done_with(self, damage: Damage, error: Exception) -> bool:
        """Apply the error policy to a damaged shard.

        Return True to skip the rest of the shard, False to read the shard again.

        Raises:
            Exception: ``error``, if the error policy does not skip damage.
        """
        if self._cutter.row > self.first:
            self._attempts = 0
        may_help = not isinstance(damage, MemoryBudgetError)  # another attempt would decompress the same record
        if may_help and not self._skips and self._attempts < self.handling.retries:
            await asyncio.sleep(self.handling.pause_s(self._attempts))
            self._attempts += 1
            self.counters.retries += 1
            return False
        if self.handling.kind != "skip":
            raise error
        if not self._skips and isinstance(damage, CorruptRecordError) and not self._is_checking:
            self._skips = True
            return False
        self._cutter.row = max(self.first, self._cutter.row)
        empty_frames(error)  # they refer to the received bytes, which are no longer charged
        self.losses.add(self._cutter.row, damage)
        return True

    async def _read(self, outlet: RecordSink) -> None:
        self._is_checking, self._cutter.row = True, 0
        if self.node.checks_first:
            await self.ranges.may_cut.wait()
        await self._check_first()
        self._is_checking = False
        report = self._cutter.lose if self._skips else None
        hint = self.offsets.before(self.number, self.first)
        finder = None if self.content is not None else finder_of(self.node, self.decoders, self.shard.url)
        if finder is not None:
            self.ranges.shard = self.shard
            hint = await send_runs(finder, hint, self.ranges, self._cutter, self.send_decoded or outlet.send)
        stream, self._cutter.row = stream_before(self.node, self.shard, hint, self._step(), report)
        self._offset = stream.first_offset
        if finder is not None:
            stream.succeed(finder.framer)
        with closing(self.stores.running_check(self.shard)) as self._check:
            await self._read_ranges(stream, outlet)
        if stream.is_doubtful:
            stream.suppose(await self.siblings.evidence(self.shard.url))
        await self._send_all(stream, stream.finish(), None, outlet)
        self._waiting.end()
        rows = self._cutter.row
        if rows < self.first:
            raise StateMismatchError(
                [f"{safe_url(self.shard.url)} has {rows} records, but the state was saved after {self.first}"],
                "Restore the shard.",
            )

    def _step(self) -> StreamStep:
        """Compute the sizes of a decompression step from the shard's share of the memory limit."""
        limit, at_once = self.budget.limit, self.open_at_once
        nbytes = block_nbytes(limit, at_once)
        self._large_nbytes = large_record_nbytes(limit, at_once)
        return StreamStep(
            nbytes=nbytes,
            headroom_nbytes=headroom_nbytes(nbytes),
            rows=rows_of_a_step(nbytes),
            lend=self._cutter.lend,
            limit=RecordLimit(limit, self.shard.nbytes),
        )

    async def _check_first(self) -> None:
        """If the source requires checksum verification, verify the shard's checksums before reading any rows."""

        @asynccontextmanager
        async def room(nbytes: int) -> AsyncIterator[None]:
            charge = await self.budget.admit(nbytes, self.is_wanted, RANGES)
            try:
                yield
            finally:
                charge.end()

        check = ShardCheck(self.node, self.stores, self.offsets, self.hop, room, self._memory, self.ranges.part_nbytes)
        await check.run(self.number, self.shard)

    async def _read_ranges(self, stream: RecordStream, outlet: RecordSink) -> None:
        is_taken = False
        async with self.ranges.reading(self.shard, self._offset, self.content):
            try:
                await self._send_ranges(stream, outlet)
            except DecompressorTaken:
                is_taken = True
        if is_taken:
            raise DecompressorTaken

    async def _send_ranges(self, stream: RecordStream, outlet: RecordSink) -> None:
        await self.ranges.may_cut.wait()
        while (block := await self.ranges.next()) is not None:
            assert isinstance(block, RangeBlock), "no runs were planned"
            await self._send_all(stream, self._fed(stream, block), block, outlet)
            del block
            if stream.is_over:
                return

    async def _send_all(
        self, stream: RecordStream, pieces: Iterator[VarColumn], block: RangeBlock | None, outlet: RecordSink
    ) -> None:
        more = True
        while more:
            if stream.is_compressed:
                self.counters.work = "decompress"
                await self._memory.reserve(stream.window_nbytes, stream.discard)
            else:
                await self._memory.until_it_may_begin()
            await self._until_it_may_gather(stream)
            room = await self.budget.room_for_step(self._hop_nbytes(stream, block), self.is_wanted)
            work = self._cutter.cut, stream, pieces, block, room.nbytes
            hop = self.hop if block is not None or stream.is_compressed or stream.held_nbytes else _here
            chunks, more = await self._memory.used_by(hop, *work)
            del work
            self._settle(stream)
            room.end()
            self._tell_losses()
            while chunks:
                await outlet.send(chunks.popleft())
            if self.losses.waiting >= MOST_AT_ONCE:
                await outlet.send_mark(records_chunk(no_records(), RowIds.none()))

    def _tell_losses(self) -> None:
        """Report the records that the last worker-thread call skipped, before sending later rows."""
        for ordinal, loss in self._cutter.lost:
            self.losses.add(ordinal, loss)
        self._cutter.lost.clear()

    async def _until_it_may_gather(self, stream: RecordStream) -> None:
        """Wait for free memory before receiving the rest of a record that exceeds the shard's memory share.

        If the record's size is known and fits into the memory limit, reserve memory for the record. If the record's
        size is unknown or too large, wait until no other large record is in memory.

        Raises:
            CorruptRecordError: The record's length field points beyond the end of the shard.
        """
        if (
            self._cutter.alone is not None
            or self._reserved_nbytes
            or not stream.held_nbytes
            or not self._is_large(stream)
        ):
            return
        stream.check_end(self.shard.nbytes or 0)
        if stream.record_nbytes > stream.held_nbytes and self.budget.has_room_for(stream.record_nbytes):
            self._reserved_nbytes = stream.record_nbytes
            self._waiting.resize(stream.record_nbytes)
        else:
            self._cutter.alone = await self.budget.alone(self.is_wanted)

    def _is_large(self, stream: RecordStream) -> bool:
        return max(stream.record_nbytes, stream.held_nbytes) > self._large_nbytes

    def _settle(self, stream: RecordStream) -> None:
        """Update the memory charge for the partially received record in the stream."""
        if not self._is_large(stream) or not stream.held_nbytes:
            self._cutter.alone, self._reserved_nbytes = None, 0
        self._waiting.resize(max(stream.held_nbytes, self._reserved_nbytes))
        self.budget.leave_free(COPIES_OF_A_ROW * stream.record_nbytes)

    def _hop_nbytes(self, stream: RecordStream, block: RangeBlock | None) -> int:
        return hop_nbytes(self.budget.limit, self.open_at_once, self._cutter.step_nbytes(stream, block))

    def _fed(self, stream: RecordStream, block: RangeBlock) -> Iterator[VarColumn]:
        """Update the checksum with the bytes of a block, then yield the record columns of the block."""
        self._check.take(block.start, block.data.data[block.headroom :])
        yield from stream.feed(block.data, block.headroom)


async def _here(function: Callable[..., T], *args: Any) -> T:
    """Call a function on the event loop. Ending a stream whose bytes are all used up takes less time than a hop."""
    return function(*args)
