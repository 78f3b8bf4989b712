"""Check the checksums of a compressed shard before any of its rows are delivered.

A gzip, zlib or zstd stream stores its checksums after the data. A checked shard is therefore read and decompressed
twice. The check discards the decompressed data, and the shard reader reads the shard again afterwards. The check needs
memory for one byte range and for the output of one decompression step.
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
"""Maximum number of pieces that one worker-thread call decompresses. A piece has at most 256 KiB."""

Room: TypeAlias = Callable[[int], AbstractAsyncContextManager[None]]
"""Function that takes a number of bytes and returns an async context manager.

The context manager counts the bytes against the memory limit.
"""


@dataclass(frozen=True)
class ShardCheck:
    """Checksum check for the shards of one source.

    Attributes:
        offsets: Record offsets of the run, and the shard versions that already passed the check.
        hop: Function that runs another function on a worker thread.
        room: Function that reserves bytes of the memory limit.
        memory: Memory reservation of the decompressor.
        step_nbytes: Size of each range request in bytes.
    """

    node: ReadFiles
    stores: StoreSet
    offsets: ShardOffsets
    hop: Callable[..., Any]
    room: Room
    memory: DecompressorMemory
    step_nbytes: int = FIRST_NBYTES

    async def run(self, number: int, shard: ShardRef) -> None:
        """Read and decompress a complete shard to verify its checksums.

        The method skips uncompressed shards, and all shards if the source does not require this check.

        Args:
            number: Number of the shard within its source.
            shard: Shard to check; its size must be known.

        Raises:
            CorruptRecordError: The compressed data of the shard is damaged.
            ChecksumError: The bytes of the shard do not match the store's checksum.
            StorageError: The shard cannot be read.
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
    """Decompress and discard at most ``PIECES_PER_HOP`` pieces, and stop after an empty piece.

    Return False at the end of the compressed stream.
    """
    for _ in range(PIECES_PER_HOP):
        piece = next(pieces, None)
        if not piece:
            return piece is not None
    return True
