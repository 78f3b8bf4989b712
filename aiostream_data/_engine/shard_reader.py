"""Read one shard: fetch its ranges ahead, cut them into records, decode them, send chunks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.budget import COPIES_OF_A_ROW, DECODED, RANGES, RECORDS, Budget, Charge
from aiostream_data._engine.buffers import BlockPool
from aiostream_data._engine.ends import Outlet
from aiostream_data._engine.origins import Hint
from aiostream_data._engine.pacing import CHUNK_ROWS
from aiostream_data._engine.shard_offsets import ShardOffsets
from aiostream_data._engine.sizes import chunk_nbytes
from aiostream_data.errors import ChecksumError
from aiostream_data.formats.stream import RecordStream
from aiostream_data.lineage import run_of_ids
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.base import Decoder, Describe
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.records import ByteRange, Chunk, Columns, ShardRef, VarColumn, records_chunk
from aiostream_data.storage.parallel_read import parts_of, read_parts
from aiostream_data.storage.ranges import plan_ranges, range_sizes, shared_out
from aiostream_data.storage.read_ahead import ReadAhead, most_ahead
from aiostream_data.storage.stores import StoreSet

HEADROOM = 64 << 10
"""Scratch before each block, so that a record cut by a range's end is joined without copying the block."""

WRONG_ATTEMPTS = 3
"""So often an object in parts is read whose bytes do not agree with its checksum."""

PIECES_PER_HOP = 4
"""Blocks of a compressed stream that are decompressed in one hop."""


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    data: NDArray[np.uint8]
    headroom: int
    charge: Charge


@dataclass
class ShardReader:
    """Reads one shard for one run.

    Attributes:
        number: The shard's number in its source.
        split: Split number of the rows' ids.
        offsets: Where records begin, as far as it is known; what is learned is added.
        open_at_once: Shards that are read at the same time, and have to fit into the budget together.
        is_wanted: Whether the order is waiting for this very shard: its admissions then pass over a
            full budget, since everything that fills it is queued behind this shard.
    """

    node: ReadFiles
    shard: ShardRef
    number: int
    split: int
    stores: StoreSet
    budget: Budget
    blocks: BlockPool
    counters: StageCounters
    hop: Callable[..., Any]
    offsets: ShardOffsets
    is_wanted: Callable[[], bool] = lambda: False
    first: int = 0
    open_at_once: int = 1
    _row: int = 0
    _offset: int = 0

    async def run(self, outlet: Outlet) -> None:
        """Send the rows of the shard from number ``first`` on, in order.

        Raises:
            CorruptRecordError, ExampleParseError, StorageError: The shard is damaged or unreachable.
            ChecksumError: The bytes are not those that its store says it has; raised before the last rows are sent.
        """
        if self.shard.nbytes is None:
            self.shard = await self.stores.info(self.shard.url)
        stream, self._row = stream_before(self.node, self.shard, self.offsets.before(self.number, self.first))
        self._offset = stream.first_offset
        self._waiting = self.budget.charge(0, RECORDS)
        with closing(self.stores.running_check(self.shard)) as self._check:
            await self._read_ranges(stream, outlet)
        await self._send_all(stream, stream.finish(), None, outlet)
        self._waiting.end()

    async def _read_ranges(self, stream: RecordStream, outlet: Outlet) -> None:
        async with asyncio.TaskGroup() as group:
            blocks: deque[asyncio.Task[_Block]] = deque()
            ahead = ReadAhead()
            ranges = self._ranges(ahead)
            for part in islice(ranges, ahead.ranges):
                blocks.append(self._begin(part, blocks, group))
            while blocks:
                ahead.took(self._most_ahead(), was_there=blocks[0].done())
                block = await blocks[0]
                blocks.popleft()
                self.budget.poke()  # the next block is the head now, and may be urgent
                await self._send_all(stream, self._fed(stream, block), block, outlet)
                del block
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
        """Return the sizes of the shard's first range and of the next one, by what is known of the store by now."""
        part_nbytes = self.stores.part_nbytes(self.shard.url)
        return range_sizes(self.budget.limit, self.open_at_once, self.node.spread, part_nbytes)

    def _begin(
        self, part: ByteRange, blocks: deque[asyncio.Task[_Block]], group: asyncio.TaskGroup
    ) -> asyncio.Task[_Block]:
        headroom = 0 if self.node.format.whole else HEADROOM

        def urgent() -> bool:
            return bool(blocks) and blocks[0] is task and self.is_wanted()

        async def fetch() -> _Block:
            charge = await self.budget.admit(part.nbytes + headroom, urgent, RANGES)
            data = self.blocks.lend(headroom + part.nbytes)
            started = perf_counter()
            if self.node.format.whole:
                await read_object(self.stores, self.shard, data.data)
            else:
                await self.stores.read_into(self.shard, part.start, data.data[headroom:])
            self.counters.extra["fetch_s"] = self.counters.extra.get("fetch_s", 0.0) + perf_counter() - started
            return _Block(part.start, data, headroom, charge)

        task = group.create_task(fetch())
        return task

    async def _send_all(
        self, stream: RecordStream, pieces: Iterator[VarColumn], block: _Block | None, outlet: Outlet
    ) -> None:
        while True:
            chunks, more = await self.hop(self._frame_and_decode, stream, pieces)
            self._waiting.resize(stream.held_nbytes)
            self.budget.leave_free(COPIES_OF_A_ROW * stream.record_nbytes)
            # All at once: those that wait for their turn hold memory as well.
            leased = self._leased(chunks, block)
            del chunks
            while leased:
                await outlet.send(leased.popleft())
            if not more:
                return

    def _fed(self, stream: RecordStream, block: _Block) -> Iterator[VarColumn]:
        """Yield the pieces of a block, the bytes of which are held against the store's checksum first."""
        self._check.take(block.start, block.data.data[block.headroom :])
        yield from stream.feed(block.data, block.headroom)

    def _leased(self, chunks: Sequence[Chunk], block: _Block | None) -> deque[Chunk]:
        return deque(chunk.with_lease(self._lease(chunk, block)) for chunk in chunks)

    def _lease(self, chunk: Chunk, block: _Block | None) -> object:
        """Return what the rows hold: the block that they look into, and arrays of their own."""
        if block is None or not _shares(chunk, block.data):
            return self.budget.charge(chunk_nbytes(chunk), DECODED)
        own = sum(leaf.nbytes for leaf in chunk.leaves if not isinstance(leaf, VarColumn))
        return (block.charge, self.budget.charge(own, DECODED)) if own else block.charge

    def _frame_and_decode(self, stream: RecordStream, pieces: Iterator[VarColumn]) -> tuple[list[Chunk], bool]:
        """Take a few pieces off the stream and make chunks of them; runs on a worker thread."""
        chunks: list[Chunk] = []
        taken = 0
        for column in islice(pieces, PIECES_PER_HOP):
            taken += 1
            for start in range(0, len(column), CHUNK_ROWS):
                offset = stream.offset_of(int(column.starts[start]))
                if offset is not None:
                    self.offsets.learn(self.number, self._row, offset)
                chunks.append(self._chunk(column.slice(start, start + CHUNK_ROWS)))
        return chunks, taken == PIECES_PER_HOP

    def _chunk(self, column: VarColumn) -> Chunk:
        first, self._row = self._row, self._row + len(column)
        if first < self.first:  # given before the state was taken
            left_out = min(self.first - first, len(column))
            column, first = column.slice(left_out, len(column)), first + left_out
        chunk: Chunk = records_chunk(column, run_of_ids(self.split, first, len(column)))
        return decode(chunk, self.node.decoders, lambda row: (self.shard.url, first + row))


async def read_object(stores: StoreSet, shard: ShardRef, buffer: memoryview) -> None:
    """Read all of an object, by several requests at once where it is large; the buffer is as long as it is.

    Raises:
        ChecksumError: The bytes are not those that the store says it has, nor when they were read anew.
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


def stream_before(node: ReadFiles, shard: ShardRef, hint: Hint) -> tuple[RecordStream, int]:
    """Return a stream that begins at a known record, and the number of that record."""
    if node.format.whole or not hint.offset:
        return RecordStream(node.format, shard.url, node.compression), 0
    return RecordStream(node.format, shard.url, node.compression, hint.offset), hint.ordinal


def decode(chunk: Chunk, decoders: Sequence[Decoder], describe: Describe) -> Chunk:
    """Apply row-wise decoders to framed records, one after another."""
    for decoder in decoders:
        if not isinstance(chunk, Columns):
            raise TypeError("decoders need framed records")
        chunk = decoder.parse(chunk, describe)
    return chunk


def _shares(chunk: Chunk, data: NDArray[np.uint8]) -> TypeGuard[Columns]:
    if not isinstance(chunk, Columns):
        return False
    return any(isinstance(leaf, VarColumn) and np.may_share_memory(leaf.values, data) for leaf in chunk.leaves)
