"""Check a compressed shard to its end before any of its rows are delivered: a pass of its own that keeps no output.

gzip, zlib and zstd have their checksums at the end of a member, stream or frame. So a shard is read and decompressed
twice: here to check it, and by its reader. Memory holds one range and one step of the decompressor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from aiostream_data._engine.memory.decompressor_memory import DecompressorMemory
from aiostream_data._engine.resume.shard_offsets import ShardOffsets
from aiostream_data.codecs.compression import Compression, Decompressor, damage_at, decompressor
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.stream import PROBE_NBYTES, resolve
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import ByteRange, ShardRef
from aiostream_data.storage.ranges import FIRST_NBYTES, plan_ranges
from aiostream_data.storage.stores import StoreSet

PIECES_PER_HOP: Final = 16
"""Pieces of at most 256 KiB that are decompressed in one hop."""

Room: TypeAlias = Callable[[int], AbstractAsyncContextManager[None]]
"""Returns an async context manager that holds room for so many bytes."""


@dataclass(frozen=True)
class ShardCheck:
    """Checks the shards of one source.

    Attributes:
        offsets: What the run knows of the shards. A version that was checked is not checked again.
        hop: Runs a function on a worker thread.
        room: Holds room for bytes in the memory limit.
        memory: Holds what the decompressor takes.
        step_nbytes: Size of a range.
    """

    node: ReadFiles
    stores: StoreSet
    offsets: ShardOffsets
    hop: Callable[..., Any]
    room: Room
    memory: DecompressorMemory
    step_nbytes: int = FIRST_NBYTES

    async def run(self, number: int, shard: ShardRef) -> None:
        """Read and decompress all of a shard, if its source asks for that and it is compressed.

        Args:
            number: The shard's number in its source.
            shard: With its size.

        Raises:
            CorruptRecordError, ChecksumError, StorageError: The shard is damaged or unreachable.
        """
        if not self.node.checks_first or self.offsets.was_checked(number, shard.version):
            return
        compression = await self._compression(shard)
        if compression:
            try:
                await self._decompress(shard, decompressor(compression, shard.url))
            except CorruptRecordError as error:
                raise damage_at(0, error) from error.__cause__  # no row of the shard is delivered
        self.offsets.note_checked(number, shard.version)

    async def _compression(self, shard: ShardRef) -> Compression:
        first = bytearray(min(PROBE_NBYTES, shard.nbytes or 0))
        if self.node.compression == "auto" and first:
            await self.stores.read_into(shard, 0, memoryview(first))
        return resolve(self.node.compression, self.node.format, bytes(first))

    async def _decompress(self, shard: ShardRef, stream: Decompressor) -> None:
        with closing(self.stores.running_check(shard)) as check:

            def fed(part: ByteRange, data: memoryview) -> Iterator[bytes]:
                check.take(part.start, data)
                yield from stream.feed(data)

            for part in plan_ranges(shard.nbytes or 0, self.step_nbytes, self.step_nbytes):
                async with self.room(part.nbytes):
                    data = np.empty(part.nbytes, np.uint8).data
                    await self.stores.read_into(shard, part.start, data)
                    pieces = fed(part, data)
                    more = True
                    while more:
                        await self.memory.reserve(stream.held_nbytes, stream.discard)
                        more = await self.memory.used_by(self.hop, _drop_some, pieces)
                    del data, pieces
        stream.finish()
        self.memory.release()


def _drop_some(pieces: Iterator[bytes]) -> bool:
    """Take a few pieces, none behind an empty one, and return whether there may be more."""
    for _ in range(PIECES_PER_HOP):
        piece = next(pieces, None)
        if not piece:
            return piece is not None
    return True
