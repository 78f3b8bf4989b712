"""Read single records of a shard: from the nearest known record before each, and no further than needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.origins import Hint
from aiostream_data._engine.shard_offsets import ShardOffsets
from aiostream_data._engine.shard_reader import HEADROOM, decode, stream_before
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.records import ByteRange, Chunk, ShardRef, VarColumn, concat, records_chunk
from aiostream_data.storage.ranges import FIRST_NBYTES, plan_ranges
from aiostream_data.storage.stores import StoreSet


@dataclass
class ShardRows:
    """Reads records of one shard by number.

    Attributes:
        number: The shard's number in its source.
        split: Split number of the rows' ids.
        hop: Runs a function on a worker thread.
    """

    node: ReadFiles
    shard: ShardRef
    number: int
    split: int
    stores: StoreSet
    offsets: ShardOffsets
    hop: Callable[..., Any]

    async def read(self, ordinals: NDArray[np.int64]) -> Chunk:
        """Return the records of these numbers, ascending and each once, in that order.

        Raises:
            StateMismatchError: The shard has no such record.
            CorruptRecordError, StorageError: It is damaged or unreachable.
        """
        if self.shard.nbytes is None:
            self.shard = await self.stores.info(self.shard.url)
        parts: list[Chunk] = []
        while len(ordinals):
            hint = self.offsets.before(self.number, int(ordinals[0]))
            near = _those_after(hint, ordinals, self.offsets)
            parts.append(await self._read_from(hint, near))
            ordinals = ordinals[len(near) :]
        return concat(parts)

    async def _read_from(self, hint: Hint, ordinals: NDArray[np.int64]) -> Chunk:
        stream, row = stream_before(self.node, self.shard, hint)
        found: list[Chunk] = []
        for part in self._ranges(stream.first_offset):
            block = np.empty(HEADROOM + part.nbytes, np.uint8)
            await self.stores.read_into(self.shard, part.start, block.data[HEADROOM:])
            row = await self.hop(self._pick, stream.feed(block, HEADROOM), row, ordinals, found)
            if row > int(ordinals[-1]):
                return concat(found)
        row = await self.hop(self._pick, stream.finish(), row, ordinals, found)
        if row <= int(ordinals[-1]):
            raise StateMismatchError([f"{self.shard.url} has {row} records, and record {ordinals[-1]} was asked for"])
        return concat(found)

    def _ranges(self, start: int) -> Iterator[ByteRange]:
        nbytes = self.shard.nbytes or 0
        if self.node.format.whole:
            return iter([ByteRange(0, nbytes)] if nbytes else [])
        return plan_ranges(nbytes, following=FIRST_NBYTES, start=start)

    def _pick(self, pieces: Iterator[VarColumn], row: int, ordinals: NDArray[np.int64], found: list[Chunk]) -> int:
        """Add the wanted records of a few pieces to ``found``; return the number of the record that follows."""
        for column in pieces:
            wanted = ordinals[(ordinals >= row) & (ordinals < row + len(column))]
            if len(wanted):
                found.append(self._decoded(column.take(wanted - row).compact(), wanted))
            row += len(column)
        return row

    def _decoded(self, column: VarColumn, ordinals: NDArray[np.int64]) -> Chunk:
        ids = np.stack([np.full(len(ordinals), self.split), ordinals], axis=1)
        chunk: Chunk = records_chunk(column, ids)
        return decode(chunk, self.node.decoders, lambda row: (self.shard.url, int(ordinals[row])))


def _those_after(hint: Hint, ordinals: NDArray[np.int64], offsets: ShardOffsets) -> NDArray[np.int64]:
    """Return the leading records to which no later record is known to be nearer."""
    for count, ordinal in enumerate(ordinals.tolist()):
        if offsets.before(hint.split, ordinal) != hint:
            return ordinals[:count]
    return ordinals
