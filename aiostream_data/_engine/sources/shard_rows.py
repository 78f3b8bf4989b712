"""Read single records of a shard: from the nearest known record before each, and no further than needed.

How this works. Records are found from the nearest one before them whose place is known, so what is wanted of a shard is
a number of short ranges: each from a known record to about where the last one is that is looked for from there. Those
that lie near each other are read by one request (:mod:`aiostream_data.storage.merging`). Where a range proves to end
too early, reading goes on behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.memory.budget import RANGES, WINDOWS, Budget, Charge
from aiostream_data._engine.memory.decompressor_memory import DecompressorMemory
from aiostream_data._engine.resume.origins import Hint
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data._engine.sources.shard_check import ShardCheck
from aiostream_data._engine.sources.shard_reader import HEADROOM, decode, read_object, stream_before
from aiostream_data.errors import CorruptRecordError, StateMismatchError
from aiostream_data.failing.policies import handling_of
from aiostream_data.formats.base import Loss
from aiostream_data.formats.stream import RecordStream
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import ByteRange, Chunk, ShardRef, VarColumn, concat, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.merging import MergedRange, merged_ranges
from aiostream_data.storage.ranges import FIRST_NBYTES, LEAST_NBYTES, NEXT_NBYTES, OPEN_SHARE, plan_ranges
from aiostream_data.storage.stores import StoreSet

REQUESTS_AT_ONCE: Final = 4
"""Ranges of one shard that are on their way together."""

MARGIN: Final = 1.25
"""Records are looked for in so many times the bytes that they would take if all were of one size."""


@dataclass
class ShardRows:
    """Reads records of one shard by number.

    Attributes:
        number: The shard's number in its source.
        split: Split number of the rows' ids.
        hop: Runs a function on a worker thread.
        most_nbytes: Most bytes that are asked for by one request where several would do.
        budget: Notes what is on its way. Nobody waits for room: what waits for these rows may be what fills it.
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
        """Return the records of these numbers, ascending and each once, in that order.

        Raises:
            StateMismatchError: The shard has no such record.
            CorruptRecordError, StorageError: It is damaged or unreachable.
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
        """Check the shard before any of its rows are read, if its source asks for that."""
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
        """Yield known records, and those that are looked for from there."""
        while len(ordinals):
            hint = self.offsets.before(self.number, int(ordinals[0]))
            near = _those_after(hint, ordinals, self.offsets)
            yield hint, near
            ordinals = ordinals[len(near) :]

    def _range_of(self, hint: Hint, ordinals: NDArray[np.int64]) -> ByteRange:
        """Return where records probably are that are looked for from a known one."""
        behind = self.offsets.behind(self.number, int(ordinals[-1]))
        return probable_range(hint, int(ordinals[-1]), behind, self.shard.nbytes or 0, self._step_nbytes)

    @property
    def _step_nbytes(self) -> int:
        """Bytes that are read at a time where it is not known how far to read."""
        return min(FIRST_NBYTES, self.most_nbytes)

    async def _read_from(self, hint: Hint, ordinals: NDArray[np.int64], first: NDArray[np.uint8]) -> Chunk:
        """Return records that are looked for from a known one, whose place is where ``first`` begins."""
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
                [f"{safe_url(self.shard.url)} has {picking.row} records, and record {picking.last} was asked for"]
            )
        return concat(picking.found)

    async def _picked(
        self, stream: RecordStream, window: Charge, pieces: Iterator[VarColumn], picking: _Picking
    ) -> None:
        """Do what :meth:`_pick` does in a hop, and note what the decompressor holds then."""
        await self.hop(self._pick, pieces, picking)
        window.resize(stream.window_nbytes)
        if picking.damage is not None:
            raise picking.damage

    def _pick(self, pieces: Iterator[VarColumn], picking: _Picking) -> None:
        """Pick the wanted records out of a few pieces."""
        for column in pieces:
            row, ordinals = picking.row, picking.ordinals
            wanted = ordinals[(ordinals >= row) & (ordinals < row + len(column))]
            if len(wanted):
                picking.found.append(self._decoded(column.take(wanted - row).compact(), wanted))
            picking.row += len(column)

    def _decoded(self, column: VarColumn, ordinals: NDArray[np.int64]) -> Chunk:
        ids = RowIds.of_source(self.split, ordinals)
        chunk: Chunk = records_chunk(column, ids)
        return decode(chunk, self.node.decoders, lambda row: (self.shard.url, int(ordinals[row])))


@dataclass
class _Picking:
    """Records that are looked for in one stream.

    Attributes:
        row: Number of the next record.
        found: What was found, in order.
        damage: In place of a record that is looked for.
    """

    url: str
    ordinals: NDArray[np.int64]
    row: int = 0
    found: list[Chunk] = field(default_factory=list)
    damage: CorruptRecordError | None = None

    @property
    def last(self) -> int:
        """Number of the last record that is looked for."""
        return int(self.ordinals[-1])

    @property
    def is_done(self) -> bool:
        """Whether nothing behind the records seen is looked for."""
        return self.row > self.last

    def lose(self, loss: Loss) -> None:
        """Pass over damage, unless it is looked for."""
        if self.damage is None and self.row in self.ordinals:
            self.damage = CorruptRecordError(self.url, loss.offset, loss.reason)
        self.row += 1


def recalled_nbytes(memory_limit: int, shards_at_once: int) -> int:
    """Return the most bytes to ask for by one request, so that all that are on their way are a quarter of a limit."""
    return max(LEAST_NBYTES, min(NEXT_NBYTES, memory_limit // (OPEN_SHARE * REQUESTS_AT_ONCE * shards_at_once)))


def probable_range(hint: Hint, last: int, behind: Hint | None, nbytes: int, step_nbytes: int) -> ByteRange:
    """Return bytes that probably hold the records from a known one to number ``last``, and begin there.

    Args:
        behind: The next known record behind ``last``: between the two, records are taken to be of one size, nearly.
        nbytes: Of the object.
        step_nbytes: How much to read where no record behind is known.
    """
    if behind is None:
        return ByteRange(hint.offset, max(hint.offset, min(nbytes, hint.offset + step_nbytes)))
    share = (last + 1 - hint.ordinal) / (behind.ordinal - hint.ordinal)
    expected = hint.offset + int(MARGIN * share * (behind.offset - hint.offset)) + LEAST_NBYTES
    return ByteRange(hint.offset, max(hint.offset, min(nbytes, behind.offset, expected)))


def _those_after(hint: Hint, ordinals: NDArray[np.int64], offsets: ShardOffsets) -> NDArray[np.int64]:
    """Return the leading records to which no later record is known to be nearer."""
    for count, ordinal in enumerate(ordinals.tolist()):
        if offsets.before(hint.split, ordinal) != hint:
            return ordinals[:count]
    return ordinals
