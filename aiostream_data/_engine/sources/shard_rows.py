"""Read single records of a shard. Each read starts at the nearest preceding record with a known byte offset.

The reader groups the requested records by the nearest known byte offset, and requests one short byte range per group.
The range ends at the estimated end of the group's last record. The store merges byte ranges that are close to each
other into one request (:mod:`aiostream_data.storage.merging`). If a range ends before the group's last record, the
reader continues after that range.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.memory.budget import RANGES, WINDOWS, Budget
from aiostream_data._engine.memory.decompressor_memory import DecompressorMemory
from aiostream_data._engine.resume.origins import Hint
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.shard_check import ShardCheck
from aiostream_data._engine.sources.shard_chunks import decode, stream_before
from aiostream_data._engine.sources.shard_ranges import HEADROOM, read_object
from aiostream_data._native import Charge
from aiostream_data.errors import CorruptRecordError, StateMismatchError
from aiostream_data.failing.policies import handling_of
from aiostream_data.formats.base import Loss
from aiostream_data.formats.stream import RecordStream
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import ByteRange, Chunk, ShardRef, concat, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.merging import MergedRange, merged_ranges
from aiostream_data.storage.ranges import FIRST_NBYTES, LEAST_NBYTES, NEXT_NBYTES, OPEN_SHARE, plan_ranges
from aiostream_data.storage.stores import StoreSet

REQUESTS_AT_ONCE: Final = 4
"""Maximum number of concurrent range requests per shard."""

MARGIN: Final = 1.25
"""Safety factor for the estimated size of a byte range. The estimate assumes records of equal size."""


@dataclass
class ShardRows:
    """Reader that fetches single records of one shard by record number.

    Attributes:
        number: Number of the shard within its source.
        split: Split number, the part of the row ids that identifies the shard.
        hop: Function that runs another function on a worker thread.
        most_nbytes: Maximum size of a merged request in bytes.
        budget: Memory budget that counts the bytes in flight. Reads never wait for free memory, because waiting could
            cause a deadlock.
    """

    node: ReadFiles
    shard: ShardRef
    number: int
    split: int
    stores: StoreSet
    offsets: ShardOffsets
    hop: Callable[..., Any]
    most_nbytes: int
    budget: Budget

    async def read(self, ordinals: NDArray[np.int64]) -> Chunk:
        """Return the records with the given numbers, which must be unique and ascending.

        Raises:
            StateMismatchError: The shard has no record with a requested number.
            CorruptRecordError: The data of the shard is damaged.
            StorageError: The shard cannot be read.
        """
        if self.shard.nbytes is None:
            self.shard = await self.stores.info(self.shard.url)
        await self._check_first()
        if self.node.format.whole:
            return await self._read_whole(ordinals)
        groups = list(self._groups(ordinals))
        wanted = [self._range_of(hint, near) for hint, near in groups]
        chunks: dict[int, Chunk] = {}
        at_once = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def read(merged: MergedRange) -> None:
            async with at_once:
                with self._noted(merged.nbytes):
                    answer = np.empty(merged.nbytes, np.uint8)
                    if merged.nbytes:
                        await self.stores.read_into(self.shard, merged.start, answer.data)
                    for number, part in merged.cut(answer.data, wanted):
                        chunks[number] = await self._read_from(*groups[number], np.frombuffer(part, np.uint8))

        async with asyncio.TaskGroup() as group:
            for merged in merged_ranges(wanted, max_nbytes=self.most_nbytes):
                group.create_task(read(merged))
        return concat([chunks[number] for number in range(len(groups))])

    async def _check_first(self) -> None:
        """If the source requires checksum verification, verify the shard's checksums before reading any rows."""
        memory = DecompressorMemory(self.budget, is_wanted=lambda: True)
        check = ShardCheck(self.node, self.stores, self.offsets, self.hop, self._room, memory, self._step_nbytes)
        try:
            await check.run(self.number, self.shard)
        finally:
            memory.release()

    @asynccontextmanager
    async def _room(self, nbytes: int) -> AsyncIterator[None]:
        with self._noted(nbytes):
            yield

    @contextmanager
    def _noted(self, nbytes: int) -> Iterator[None]:
        charge = self.budget.charge(nbytes, RANGES)
        try:
            yield
        finally:
            charge.end()

    def _groups(self, ordinals: NDArray[np.int64]) -> Iterator[tuple[Hint, NDArray[np.int64]]]:
        """Yield each known record offset to start from, and the requested records to read from this offset."""
        while len(ordinals):
            hint = self.offsets.before(self.number, int(ordinals[0]))
            near = _those_after(hint, ordinals, self.offsets)
            yield hint, near
            ordinals = ordinals[len(near) :]

    def _range_of(self, hint: Hint, ordinals: NDArray[np.int64]) -> ByteRange:
        """Estimate the byte range from a record with a known offset to the last record in ``ordinals``."""
        behind = self.offsets.behind(self.number, int(ordinals[-1]))
        return probable_range(hint, int(ordinals[-1]), behind, self.shard.nbytes or 0, self._step_nbytes)

    @property
    def _step_nbytes(self) -> int:
        """Size in bytes of each range request, if no byte offset after the requested records is known."""
        return min(FIRST_NBYTES, self.most_nbytes)

    async def _read_from(self, hint: Hint, ordinals: NDArray[np.int64], first: NDArray[np.uint8]) -> Chunk:
        """Return the requested records that follow a record with a known offset.

        Args:
            first: Bytes of the shard, starting at the offset in ``hint``. The method reads more bytes if needed.
        """
        stream, picking = self._stream(hint, ordinals)
        window = self.budget.charge(0, WINDOWS)
        await self._picked(stream, window, stream.feed(first, 0), picking)
        step = self._step_nbytes
        for part in plan_ranges(self.shard.nbytes or 0, step, step, hint.offset + len(first)):
            if picking.is_done:
                return concat(picking.found)
            with self._noted(HEADROOM + part.nbytes):
                block = np.empty(HEADROOM + part.nbytes, np.uint8)
                await self.stores.read_into(self.shard, part.start, block.data[HEADROOM:])
                await self._picked(stream, window, stream.feed(block, HEADROOM), picking)
        return await self._finish(stream, window, picking)

    async def _read_whole(self, ordinals: NDArray[np.int64]) -> Chunk:
        stream, picking = self._stream(Hint(self.number, 0, 0), ordinals)
        window = self.budget.charge(0, WINDOWS)
        if self.shard.nbytes:
            with self._noted(self.shard.nbytes):
                block = np.empty(self.shard.nbytes, np.uint8)
                await read_object(self.stores, self.shard, block.data)
                await self._picked(stream, window, stream.feed(block, 0), picking)
        return await self._finish(stream, window, picking)

    def _stream(self, hint: Hint, ordinals: NDArray[np.int64]) -> tuple[RecordStream, _Picking]:
        picking = _Picking(self.shard.url, ordinals)
        report = picking.lose if handling_of(self.node.on_error).kind == "skip" else None
        stream, picking.row = stream_before(self.node, self.shard, hint, report=report)
        return stream, picking

    async def _finish(self, stream: RecordStream, window: Charge, picking: _Picking) -> Chunk:
        if not picking.is_done:
            await self._picked(stream, window, stream.finish(), picking)
        if not picking.is_done:
            raise StateMismatchError(
                [f"{safe_url(self.shard.url)} has {picking.row} records, but record {picking.last} was requested"],
                "Restore the shard.",
            )
        return concat(picking.found)

    async def _picked(
        self, stream: RecordStream, window: Charge, pieces: Iterator[VarColumn], picking: _Picking
    ) -> None:
        """Run :meth:`_pick` on a worker thread, then charge the memory of the decompressor.

        If a requested record is damaged, raise its error.
        """
        await self.hop(self._pick, pieces, picking)
        window.resize(stream.window_nbytes)
        if picking.damage is not None:
            raise picking.damage

    def _pick(self, pieces: Iterator[VarColumn], picking: _Picking) -> None:
        """Collect the requested records from the given pieces of the stream.

        Take no piece behind the last requested record: there can be damage, which these records do not have.
        """
        for column in pieces:
            row, ordinals = picking.row, picking.ordinals
            wanted = ordinals[(ordinals >= row) & (ordinals < row + len(column))]
            if len(wanted):
                picking.found.append(self._decoded(column.take(wanted - row).compact(), wanted))
            picking.row += len(column)
            if picking.is_done:
                return

    def _decoded(self, column: VarColumn, ordinals: NDArray[np.int64]) -> Chunk:
        ids = RowIds.of_source(self.split, ordinals)
        chunk: Chunk = records_chunk(column, ids)
        return decode(chunk, self.node.decoders, lambda row: (self.shard.url, int(ordinals[row])))


@dataclass
class _Picking:
    """Progress of the search for the requested records in one stream.

    Attributes:
        row: Number of the next record in the stream.
        found: Chunks of the requested records found so far, in order.
        damage: Error of a damaged requested record, or None.
    """

    url: str
    ordinals: NDArray[np.int64]
    row: int = 0
    found: list[Chunk] = field(default_factory=list)
    damage: CorruptRecordError | None = None

    @property
    def last(self) -> int:
        """Number of the last requested record."""
        return int(self.ordinals[-1])

    @property
    def is_done(self) -> bool:
        """True if the stream has passed the last requested record."""
        return self.row > self.last

    def lose(self, loss: Loss) -> None:
        """Skip a damaged record. Store the record's error if the record was requested."""
        if self.damage is None and self.row in self.ordinals:
            self.damage = CorruptRecordError(self.url, loss.offset, loss.reason)
        self.row += 1


def recalled_nbytes(memory_limit: int, shards_at_once: int) -> int:
    """Return the maximum request size in bytes.

    With this size, all concurrent requests together use only a share of the memory limit.
    """
    return max(LEAST_NBYTES, min(NEXT_NBYTES, memory_limit // (OPEN_SHARE * REQUESTS_AT_ONCE * shards_at_once)))


def probable_range(hint: Hint, last: int, behind: Hint | None, nbytes: int, step_nbytes: int) -> ByteRange:
    """Estimate the byte range from the record at ``hint`` to the end of record ``last``.

    Args:
        behind: Next record after ``last`` with a known offset. The estimate assumes that all records up to ``behind``
            have similar sizes.
        nbytes: Size of the object in bytes.
        step_nbytes: Size of the byte range if ``behind`` is None.
    """
    if behind is None:
        return ByteRange(hint.offset, max(hint.offset, min(nbytes, hint.offset + step_nbytes)))
    share = (last + 1 - hint.ordinal) / (behind.ordinal - hint.ordinal)
    expected = hint.offset + int(MARGIN * share * (behind.offset - hint.offset)) + LEAST_NBYTES
    return ByteRange(hint.offset, max(hint.offset, min(nbytes, behind.offset, expected)))


def _those_after(hint: Hint, ordinals: NDArray[np.int64], offsets: ShardOffsets) -> NDArray[np.int64]:
    """Return the leading ``ordinals`` that have ``hint`` as their nearest preceding offset."""
    for count, ordinal in enumerate(ordinals.tolist()):
        if offsets.before(hint.split, ordinal) != hint:
            return ordinals[:count]
    return ordinals
