"""Read one shard: prefetch its byte ranges, split the ranges into records, decode the records, and send chunks.

Memory accounting: The reader reserves memory before it requests a byte range, and before each step that decompresses or
splits data. The memory of a step is known in advance, because one step creates at most one block and one column
(:class:`.stream.StreamStep`). The reader releases this reservation after the step's call on a worker thread. Each chunk
then holds memory leases on the block that contains its rows, and on its own index, ids and arrays. The reader's memory
also includes partially received records, the decompressor, and the decompressor's window of previous output.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.failures.shard_losses import MOST_AT_ONCE, ShardLosses
from aiostream_data._engine.flow.chunk_sizes import CHUNK_ROWS
from aiostream_data._engine.flow.context import value_of
from aiostream_data._engine.flow.first_failing_row import leading
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.flow.step_sizes import (
    INDEX_NBYTES,
    ROW_NBYTES,
    block_nbytes,
    headroom_nbytes,
    hop_nbytes,
    large_record_nbytes,
    rows_of_a_step,
)
from aiostream_data._engine.memory.budget import (
    COPIES_OF_A_ROW,
    DECODED,
    RANGES,
    RECORDS,
    Alone,
    Budget,
    Charge,
)
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.memory.decompressor_memory import SMALL_NBYTES, DecompressorMemory, DecompressorTaken
from aiostream_data._engine.resume.origins import Hint
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.shard_check import ShardCheck
from aiostream_data._engine.sources.shard_damage import damage_of
from aiostream_data._engine.sources.shard_siblings import ShardSiblings
from aiostream_data.codecs.zstd_blocks import MAX_BLOCK_NBYTES
from aiostream_data.errors import ChecksumError, CorruptRecordError, DataError, StateMismatchError, StorageError
from aiostream_data.executors.base import Outcome
from aiostream_data.failing.policies import Handling
from aiostream_data.formats.base import Loss, Report
from aiostream_data.formats.cutting import no_records
from aiostream_data.formats.long_record import ObjectBuffer
from aiostream_data.formats.skipping_stream import SkippingStream
from aiostream_data.formats.stream import HEADROOM_NBYTES, RecordStream, StreamStep
from aiostream_data.metrics.counters import BYTES_WAIT, FETCH, FETCHED, FETCHES, StageCounters
from aiostream_data.plan.base import Decoder, Describe
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import (
    ByteRange,
    Chunk,
    Columns,
    ShardRef,
    VarColumn,
    concat,
    records_chunk,
    same_layout,
)
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.parallel_read import parts_of, read_parts
from aiostream_data.storage.ranges import plan_ranges, range_sizes, shared_out
from aiostream_data.storage.read_ahead import ReadAhead, most_ahead
from aiostream_data.storage.stores import StoreSet

HEADROOM = HEADROOM_NBYTES
"""Size in bytes of the free space in front of each range in its buffer."""

WHOLE_SHARE = 0.25
"""Fraction of the memory limit above which a single-record object must be the only large record in memory."""

SMALL_CHUNK_NBYTES = 64 << 10
"""Skipped records can split a chunk into small chunks. The reader merges chunks below this size in bytes."""

WRONG_ATTEMPTS = 3
"""Maximum number of attempts to read an object whose bytes do not match its checksum."""


class Content(NamedTuple):
    """Bytes of a whole shard, with the lease of their block."""

    values: NDArray[np.uint8]
    lease: object


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    data: NDArray[np.uint8]
    headroom: int
    lease: object


class _Lease:
    """Memory charge of a buffer, with the exclusive permit if the buffer contains a large record.

    The charge and the permit are released when the last chunk that refers to the buffer is deleted.
    """

    __slots__ = ("__weakref__", "_alone", "_charge")

    def __init__(self, charge: Charge, alone: Alone | None) -> None:
        self._charge = charge
        self._alone = alone


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
        is_wanted: Returns True if the merge waits for this shard. The reader may then exceed a full memory limit,
            because all rows that fill it are queued behind this shard.
        failure: Error of an earlier attempt to read the shard, which counts as the first attempt; else None.
        content: Bytes of the whole shard if an earlier attempt has read them, for the first attempt only; else None.
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
    is_wanted: Callable[[], bool] = lambda: False
    first: int = 0
    open_at_once: int = 1
    losses: ShardLosses = field(default_factory=ShardLosses)
    handling: Handling = field(default_factory=Handling)
    failure: Exception | None = None
    content: Content | None = None
    _row: int = 0
    _offset: int = 0
    _alone: Alone | None = None
    _reserved_nbytes: int = 0  # for a large record of known size
    _block: tuple[NDArray[np.uint8], Charge] | None = None  # decompressed block while it is being cut
    _joined: tuple[weakref.ref[NDArray[np.uint8]], weakref.ref[_Lease]] | None = None  # record from several blocks
    _made: int = 0  # bytes made by the current hop
    _damage: Exception | None = None  # raised after the rows of the current hop were sent
    _attempts: int = 0  # retries at the current damage
    _lost: list[tuple[int, Loss]] = field(default_factory=list)  # (record number, loss) of the current hop
    _is_checking: bool = False

    def __post_init__(self) -> None:
        self._skips = self.handling.kind == "skip" and not self.handling.retries

    async def run(self, outlet: Outlet) -> None:
        """Send the rows of the shard, in order, starting with row number ``first``.

        Raises:
            CorruptRecordError: The data of the shard is damaged.
            ExampleParseError: A record cannot be parsed as an Example message.
            StorageError: The shard cannot be read.
            ChecksumError: The bytes do not match the store's checksum. The reader raises this error before it sends the
                last rows.
        """
        self._waiting, self._memory = self.budget.charge(0, RECORDS), DecompressorMemory(self.budget, self.is_wanted)
        try:
            while not await self._has_sent_all(outlet):
                self.first = max(self.first, self._row)
                self.content = None
                self._lost.clear()
                self._alone, self._reserved_nbytes, self._block, self._damage = None, 0, None, None
                self._waiting.end()
                self._memory.release()
        finally:
            self._memory.release()

    async def _has_sent_all(self, outlet: Outlet) -> bool:
        """Read the shard from row ``first``. Return False if the shard must be read again."""
        try:
            failure, self.failure = self.failure, None
            if failure is not None:
                raise failure
            if self.shard.nbytes is None:
                began = perf_counter()
                self.shard = await self.stores.info(self.shard.url)
                self.counters.add(BYTES_WAIT, perf_counter() - began)
            await self._read(outlet)
        except DecompressorTaken:
            return False
        except Exception as error:
            damage = damage_of(error, delivers_later=self.node.format.whole or self._is_checking)
            if damage is None or not self.handling.interferes:
                raise
            return await self._is_done_with(damage, error)
        return True

    async def _is_done_with(self, damage: DataError | StorageError, error: Exception) -> bool:
        """Apply the error policy to a damaged shard.

        Return True to skip the rest of the shard, False to read the shard again.

        Raises:
            Exception: ``error``, if the error policy does not skip damage.
        """
        if self._row > self.first:
            self._attempts = 0
        if not self._skips and self._attempts < self.handling.retries:
            await asyncio.sleep(self.handling.pause_s(self._attempts))
            self._attempts += 1
            self.counters.retries += 1
            return False
        if self.handling.kind != "skip":
            raise error
        if not self._skips and isinstance(damage, CorruptRecordError) and not self._is_checking:
            self._skips = True
            return False
        self._row = max(self.first, self._row)
        self.losses.add(self._row, damage)
        return True

    async def _read(self, outlet: Outlet) -> None:
        self._is_checking, self._row = True, 0
        await self._check_first()
        self._is_checking = False
        report = self._lose if self._skips else None
        hint = self.offsets.before(self.number, self.first)
        stream, self._row = stream_before(self.node, self.shard, hint, self._step(), report)
        self._offset = stream.first_offset
        with closing(self.stores.running_check(self.shard)) as self._check:
            await self._read_ranges(stream, outlet)
        if stream.is_doubtful:
            stream.suppose(await self.siblings.evidence(self.shard.url))
        await self._send_all(stream, stream.finish(), None, outlet)
        self._waiting.end()
        if self._row < self.first:
            raise StateMismatchError(
                [f"{safe_url(self.shard.url)} has {self._row} records, but the state was saved after {self.first}"],
                "Restore the shard.",
            )

    def _step(self) -> StreamStep:
        """Compute the sizes of a decompression step from the shard's share of the memory limit."""
        limit, at_once = self.budget.limit, self.open_at_once
        nbytes = block_nbytes(limit, at_once)
        self._large_nbytes = large_record_nbytes(limit, at_once)
        return StreamStep(
            nbytes=nbytes, headroom_nbytes=headroom_nbytes(nbytes), rows=rows_of_a_step(nbytes), lend=self._lend
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

        check = ShardCheck(self.node, self.stores, self.offsets, self.hop, room, self._memory, self._sizes()[1])
        await check.run(self.number, self.shard)

    async def _read_ranges(self, stream: RecordStream, outlet: Outlet) -> None:
        is_taken = False
        async with asyncio.TaskGroup() as group:
            blocks: deque[asyncio.Task[Outcome]] = deque()
            try:
                await self._send_ranges(stream, outlet, blocks, group)
            except DecompressorTaken:
                is_taken = True
                for block in blocks:
                    block.cancel()
        if is_taken:
            raise DecompressorTaken

    async def _send_ranges(
        self, stream: RecordStream, outlet: Outlet, blocks: deque[asyncio.Task[Outcome]], group: asyncio.TaskGroup
    ) -> None:
        ahead = ReadAhead()
        ranges = self._ranges(ahead)
        for part in islice(ranges, ahead.ranges):
            blocks.append(self._begin(part, blocks, group))
        while blocks:
            ahead.took(self._most_ahead(), was_there=blocks[0].done())
            began = perf_counter()
            block: _Block = value_of(await blocks[0])
            self.counters.add(BYTES_WAIT, perf_counter() - began)
            blocks.popleft()
            self.budget.poke()  # the next block is first in line and may now be urgent
            await self._send_all(stream, self._fed(stream, block), block, outlet)
            del block
            if stream.is_over:
                for block_ahead in blocks:
                    block_ahead.cancel()
                return
            for part in islice(ranges, max(0, ahead.ranges - len(blocks))):
                blocks.append(self._begin(part, blocks, group))

    def _ranges(self, ahead: ReadAhead) -> Iterator[ByteRange]:
        nbytes = self.shard.nbytes or 0
        if self.node.format.whole and nbytes:
            return iter([ByteRange(0, nbytes)])
        first, _ = self._sizes()

        def next_size(left_nbytes: int) -> int:
            return shared_out(self._sizes()[1], left_nbytes, ahead.ranges)

        return plan_ranges(nbytes, first, next_size, self._offset)

    def _most_ahead(self) -> int:
        return most_ahead(self.budget.limit, self.open_at_once, self._sizes()[1])

    def _sizes(self) -> tuple[int, int]:
        """Return the sizes in bytes of the first and of later range requests, from measurements of the store."""
        part_nbytes = self.stores.part_nbytes(self.shard.url)
        return range_sizes(self.budget.limit, self.open_at_once, self.node.spread, part_nbytes)

    def _begin(
        self, part: ByteRange, blocks: deque[asyncio.Task[Outcome]], group: asyncio.TaskGroup
    ) -> asyncio.Task[Outcome]:
        headroom = HEADROOM

        def urgent() -> bool:
            return bool(blocks) and blocks[0] is task and self.is_wanted()

        async def outcome(fetch: Callable[[], Awaitable[_Block]]) -> Outcome:
            try:
                return Outcome(await fetch())
            except Exception as error:  # noqa: BLE001 - raised in the range's turn, behind the rows before
                return Outcome(error=error)

        async def fetch() -> _Block:
            charge = await self.budget.admit(part.nbytes + headroom, urgent, RANGES)
            data = self.blocks.lend(headroom + part.nbytes)
            if self.content is not None:
                data[headroom:] = self.content.values[part.start : part.stop]
            else:
                with self._fetching(part.nbytes):
                    await self.stores.read_into(self.shard, part.start, data.data[headroom:])
            return _Block(part.start, data, headroom, _Lease(charge, None))

        async def fetch_whole() -> _Block:
            if self.content is not None:
                return _Block(part.start, self.content.values, 0, self.content)
            is_large = part.nbytes > WHOLE_SHARE * self.budget.limit
            alone = await self.budget.alone(urgent) if is_large else None
            charge = await self.budget.admit(part.nbytes, urgent, RANGES)
            buffer = ObjectBuffer(part.nbytes) if is_large else None
            data = self.blocks.lend(part.nbytes) if buffer is None else np.empty(0, np.uint8)
            with self._fetching(part.nbytes):
                await read_object(self.stores, self.shard, data.data if buffer is None else buffer.view)
            if alone is not None:
                alone.gathered()
            return _Block(part.start, data if buffer is None else buffer.data(), 0, _Lease(charge, alone))

        task = group.create_task(outcome(fetch_whole if self.node.format.whole else fetch))
        return task

    @contextmanager
    def _fetching(self, nbytes: int) -> Iterator[None]:
        started = perf_counter()
        yield
        self.counters.add(FETCH, perf_counter() - started)
        self.counters.add(FETCHES, 1)
        self.counters.add(FETCHED, nbytes)

    async def _send_all(
        self, stream: RecordStream, pieces: Iterator[VarColumn], block: _Block | None, outlet: Outlet
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
            work = self._frame_and_decode, stream, pieces, block, room.nbytes
            chunks, more = await self._memory.used_by(self.hop, *work)
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
        for ordinal, loss in self._lost:
            self.losses.add(ordinal, loss)
        self._lost.clear()

    async def _until_it_may_gather(self, stream: RecordStream) -> None:
        """Wait for free memory before receiving the rest of a record that exceeds the shard's memory share.

        If the record's size is known and fits into the memory limit, reserve memory for the record. If the record's
        size is unknown or too large, wait until no other large record is in memory.

        Raises:
            CorruptRecordError: The record's length field points beyond the end of the shard.
        """
        if self._alone is not None or self._reserved_nbytes or not stream.held_nbytes or not self._is_large(stream):
            return
        stream.check_end(self.shard.nbytes or 0)
        if stream.record_nbytes > stream.held_nbytes and self.budget.has_room_for(stream.record_nbytes):
            self._reserved_nbytes = stream.record_nbytes
            self._waiting.resize(stream.record_nbytes)
        else:
            self._alone = await self.budget.alone(self.is_wanted)

    def _is_large(self, stream: RecordStream) -> bool:
        return max(stream.record_nbytes, stream.held_nbytes) > self._large_nbytes

    def _settle(self, stream: RecordStream) -> None:
        """Update the memory charge for the partially received record in the stream."""
        if not self._is_large(stream) or not stream.held_nbytes:
            self._alone, self._reserved_nbytes = None, 0
        self._waiting.resize(max(stream.held_nbytes, self._reserved_nbytes))
        self.budget.leave_free(COPIES_OF_A_ROW * stream.record_nbytes)

    def _step_nbytes(self, stream: RecordStream, block: _Block | None) -> int:
        """Return the maximum number of bytes that one decompression step allocates."""
        index = ROW_NBYTES * stream.step.rows
        if stream.is_compressed or stream.is_unknown:  # a zstd block is never split
            made = max(stream.step.nbytes, MAX_BLOCK_NBYTES)
            return 2 * made + stream.step.headroom_nbytes + index
        joins = block is not None and stream.tail_nbytes > HEADROOM
        return index + (stream.tail_nbytes + len(block.data) if joins and block is not None else 0)

    def _hop_nbytes(self, stream: RecordStream, block: _Block | None) -> int:
        return hop_nbytes(self.budget.limit, self.open_at_once, self._step_nbytes(stream, block))

    def _fed(self, stream: RecordStream, block: _Block) -> Iterator[VarColumn]:
        """Update the checksum with the bytes of a block, then yield the record columns of the block."""
        self._check.take(block.start, block.data.data[block.headroom :])
        yield from stream.feed(block.data, block.headroom)

    # -- on a worker thread

    def _lend(self, nbytes: int) -> NDArray[np.uint8]:
        """Allocate memory for a decompressed block, and charge this memory to the budget."""
        data = self.blocks.lend(nbytes)
        self._block = (data, self.budget.charge(nbytes, DECODED))
        self._made += nbytes
        return data

    def _frame_and_decode(
        self, stream: RecordStream, pieces: Iterator[VarColumn], block: _Block | None, room_nbytes: int
    ) -> tuple[deque[Chunk], bool]:
        """Run :meth:`_cut_and_decode`. If skipped records have split chunks, merge the small chunks."""
        chunks, more = self._cut_and_decode(stream, pieces, block, room_nbytes)
        if not self._lost:
            return chunks, more
        joined: deque[Chunk] = deque()
        for group in alike(chunks, CHUNK_ROWS, SMALL_CHUNK_NBYTES):
            chunk = concat(group)
            joined.append(chunk if len(group) == 1 else chunk.with_lease(self._charged(chunk)))
        return joined, more

    def _charged(self, chunk: Chunk) -> Charge:
        return self.budget.charge(chunk_nbytes(chunk), DECODED)

    def _cut_and_decode(
        self, stream: RecordStream, pieces: Iterator[VarColumn], block: _Block | None, room_nbytes: int
    ) -> tuple[deque[Chunk], bool]:
        """Read records from the stream and decode these records, as long as the next step fits into ``room_nbytes``.

        Returns:
            The chunks, and True if the stream may yield more records.

        Raises:
            CorruptRecordError: The data of the shard is damaged. Previous calls have returned all chunks before the
                damage.
            ExampleParseError: A record cannot be parsed as an Example message. Previous calls have returned all chunks
                before that record.
        """
        chunks: deque[Chunk] = deque()
        step, held = self._step_nbytes(stream, block), stream.held_nbytes
        self._made = 0
        reserved = max(self._memory.nbytes, SMALL_NBYTES)
        while self._made + max(0, stream.held_nbytes - held) + step <= room_nbytes and len(self._lost) < MOST_AT_ONCE:
            if stream.window_nbytes > reserved:
                return chunks, True
            column = self._next_column(pieces, had_some=bool(chunks))
            if column is None or not (len(column) or len(column.values)):  # the block is used up
                self._block = None
            if column is None:
                return chunks, self._damage is not None
            for start in range(0, len(column), CHUNK_ROWS):
                offset = stream.offset_of(int(column.starts[start]))
                if offset is not None:
                    self.offsets.learn(self.number, self._row, offset)
                for chunk in self._chunks(column.slice(start, start + CHUNK_ROWS)):
                    chunks.append(self._leased(chunk, column, block))
                if self._damage is not None:
                    return chunks, True
        return chunks, True

    def _next_column(self, pieces: Iterator[VarColumn], had_some: bool) -> VarColumn | None:
        """Return the next column, or None at the end of the stream.

        Raise a damage error only after all chunks before the damage have been returned.
        """
        if self._damage is not None:
            raise self._damage
        try:
            return next(pieces, None)
        except CorruptRecordError as error:
            if not had_some:
                raise
            self._damage = error
            return None

    def _lose(self, loss: Loss) -> None:
        """Assign the next record number to a skipped record. Record the loss unless the number is below ``first``."""
        ordinal, self._row = self._row, self._row + 1
        if ordinal >= self.first:
            self._lost.append((ordinal, loss))

    def _leased(self, chunk: Chunk, column: VarColumn, block: _Block | None) -> Chunk:
        """Return the chunk with memory leases on its own arrays and on the buffer that contains its rows."""
        own = own_nbytes(chunk, column.values)
        if own is None:
            self._made += ROW_NBYTES * len(chunk)  # decoded arrays are charged but do not end the hop
            return chunk.with_lease(self._charged(chunk))
        self._made += own
        return chunk.with_lease((self._buffer_lease(column.values, block), self.budget.charge(own, DECODED)))

    def _buffer_lease(self, values: NDArray[np.uint8], block: _Block | None) -> object:
        """Return the memory lease of the range, decompressed block or joined record that contains ``values``."""
        if block is not None and np.may_share_memory(values, block.data):
            return block.lease
        if self._block is not None and np.may_share_memory(values, self._block[0]):
            return self._block[1]
        lease = self._lease_of_joined(values)
        if lease is None:
            alone, self._alone = self._alone, None
            if alone is not None:
                alone.gathered()
            self._waiting.end()  # the partial record was copied into this buffer
            lease = _Lease(self.budget.charge(values.nbytes, DECODED), alone)
            self._joined = weakref.ref(values), weakref.ref(lease)
            self._made += values.nbytes
        return lease

    def _lease_of_joined(self, values: NDArray[np.uint8]) -> _Lease | None:
        """Return the last joined record's lease, or None if ``values`` is another buffer or the lease has ended."""
        if self._joined is None or self._joined[0]() is not values:
            return None
        return self._joined[1]()

    def _chunks(self, column: VarColumn) -> Sequence[Chunk]:
        """Decode the rows of a column in order. Stop at the first row that cannot be decoded."""
        first, self._row = self._row, self._row + len(column)
        if first < self.first:  # sent before the state was saved
            left_out = min(self.first - first, len(column))
            column, first = column.slice(left_out, len(column)), first + left_out

        def decoded(start: int, stop: int) -> Chunk:
            ids = RowIds.run(self.split, first + start, stop - start)
            chunk: Chunk = records_chunk(column.slice(start, stop), ids)
            return decode(chunk, self.node.decoders, lambda row: (self.shard.url, first + start + row))

        found = leading(len(column), decoded)
        self._damage = found.error
        return found.done


def alike(chunks: Iterable[Chunk], most_rows: int, small_nbytes: int) -> Iterator[list[Chunk]]:
    """Group consecutive small chunks of the same layout.

    A group has at most ``most_rows`` rows. Yield larger chunks alone.
    """
    group: list[Chunk] = []
    rows = 0
    for chunk in chunks:
        is_small = chunk_nbytes(chunk) < small_nbytes
        if group and not (is_small and rows + len(chunk) <= most_rows and same_layout([group[-1], chunk])):
            yield group
            group, rows = [], 0
        group.append(chunk)
        rows += len(chunk)
        if not is_small:
            yield group
            group, rows = [], 0
    if group:
        yield group


async def read_object(stores: StoreSet, shard: ShardRef, buffer: memoryview) -> None:
    """Read a complete object into ``buffer``, which has the object's length.

    The function reads large objects in several parallel parts.

    Raises:
        ChecksumError: The bytes did not match the store's checksum in ``WRONG_ATTEMPTS`` attempts.
    """
    parts = parts_of(shard, len(buffer), stores.part_nbytes(shard.url))
    for attempt in range(1, WRONG_ATTEMPTS + 1):
        await read_parts(stores, shard, parts, buffer)
        try:
            await stores.check_parts(shard, buffer, parts)
            return
        except ChecksumError:
            if attempt == WRONG_ATTEMPTS:
                raise


def stream_before(
    node: ReadFiles, shard: ShardRef, hint: Hint, step: StreamStep | None = None, report: Report | None = None
) -> tuple[RecordStream, int]:
    """Return a record stream that starts at a known byte offset, and the number of the stream's first record.

    Args:
        report: Function to call for each damaged record. The stream skips these records. If ``report`` is None, the
            stream raises an error at the first damaged record.
    """
    offset, ordinal = (0, 0) if node.format.whole or not hint.offset else (hint.offset, hint.ordinal)
    what = node.format, shard.url, node.compression, offset, step
    if report is None:
        return RecordStream(*what), ordinal
    return SkippingStream(*what, report=report, nbytes=shard.nbytes or 0), ordinal


def decode(chunk: Chunk, decoders: Sequence[Decoder], describe: Describe) -> Chunk:
    """Apply the row-wise decoders, in order, to records split from the shard."""
    for decoder in decoders:
        if not isinstance(chunk, Columns):
            raise TypeError("decoders need framed records")
        chunk = decoder.parse(chunk, describe)
    return chunk


def own_nbytes(chunk: Chunk, values: NDArray[np.uint8]) -> int | None:
    """Return the bytes of a chunk besides ``values``: ids, indices and arrays. None if no leaf refers to ``values``."""
    leaves = chunk.leaves if isinstance(chunk, Columns) else ()
    shares = [isinstance(leaf, VarColumn) and np.may_share_memory(leaf.values, values) for leaf in leaves]
    if not any(shares):
        return None
    return chunk.ids.nbytes + sum(
        INDEX_NBYTES * len(leaf) if is_shared else leaf.nbytes for leaf, is_shared in zip(leaves, shares, strict=True)
    )
