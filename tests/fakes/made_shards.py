"""A store of TFRecord shards that are nowhere: their names are listed and their bytes made when asked for."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from aiostream_data.errors import ShortReadError
from aiostream_data.formats.tfrecord import FOOTER, HEADER
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.registry import register_store

FRAME_NBYTES = HEADER.size + FOOTER.size
NAME_DIGITS = 7


@dataclass
class MadeShards:
    """So many shards of so many records of one length, which say which they are; remembers every read.

    Attributes:
        record_nbytes: Length of a record with its frame.
        compressed: Shards are zlib streams.
        latency_s: Time before every answer.
        answers: Reads that are answered at all; later ones wait for ever. None for no bound.
        reads: (shard, first byte, last byte + 1), in the order they came.
    """

    shards: int
    rows: int
    record_nbytes: int = 64
    compressed: bool = False
    latency_s: float = 0.0
    answers: int | None = None
    reads: list[tuple[int, int, int]] = field(default_factory=list)
    _known: dict[int, bytes] = field(default_factory=dict)

    scheme = "made"
    pattern = "made://set/*"

    @property
    def nbytes(self) -> int:
        """Bytes of all shards together, if they are not compressed."""
        return self.shards * self.rows * self.record_nbytes

    def url(self, shard: int) -> str:
        return f"made://set/{shard:0{NAME_DIGITS}}"

    def record(self, shard: int, row: int) -> bytes:
        return f"{shard} {row}".encode().ljust(self.record_nbytes - FRAME_NBYTES)

    @contextmanager
    def served(self) -> Iterator[MadeShards]:
        """Serve ``made://`` URLs in the block."""
        register_store(self.scheme, lambda options, run_blocking: self)
        try:
            yield self
        finally:
            register_store(self.scheme, None)

    async def info(self, url: str) -> ShardRef:
        await asyncio.sleep(self.latency_s)
        return self._ref(_number(url))

    async def glob(self, pattern: str) -> list[ShardRef]:
        await asyncio.sleep(self.latency_s)
        return [self._ref(_number(pattern))] if pattern != self.pattern else self._listing

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        number = _number(shard.url)
        self.reads.append((number, start, start + len(buffer)))
        if self.answers is not None and len(self.reads) > self.answers:
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency_s)
        stop = start + len(buffer)
        found = self._compressed(number)[start:stop] if self.compressed else self._part(number, start, stop)
        if len(found) != len(buffer):
            raise ShortReadError(shard.url, f"{len(buffer)} bytes were asked for at {start}")
        buffer[:] = found

    async def aclose(self) -> None:
        """Do nothing."""

    def _ref(self, shard: int) -> ShardRef:
        nbytes = len(self._compressed(shard)) if self.compressed else self.rows * self.record_nbytes
        return ShardRef(self.url(shard), nbytes, "1")

    @cached_property
    def _listing(self) -> list[ShardRef]:
        return [self._ref(shard) for shard in range(self.shards)]

    def _part(self, shard: int, start: int, stop: int) -> bytes:
        first, last = start // self.record_nbytes, (stop - 1) // self.record_nbytes
        made = self._rows(shard, range(first, min(last + 1, self.rows)))
        return made[start - first * self.record_nbytes :][: stop - start]

    def _rows(self, shard: int, rows: range) -> bytes:
        return b"".join(frame(self.record(shard, row)) for row in rows)

    def _compressed(self, shard: int) -> bytes:
        if shard not in self._known:
            self._known[shard] = zlib.compress(self._rows(shard, range(self.rows)))
        return self._known[shard]


def places(batch: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return (shard, row) of the records of a batch."""
    return [(int(shard), int(row)) for shard, row in (record.split() for record in batch)]


def _number(url: str) -> int:
    return int(url[-NAME_DIGITS:])
