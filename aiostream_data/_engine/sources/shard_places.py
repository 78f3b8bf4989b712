"""Positions in shards, for saved states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.failures.shard_losses import ShardLosses
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.merge_log import StreamPlace
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.resume.shard_offsets import ShardOffsets


@dataclass(frozen=True)
class ShardStarts(Sequence[StreamPlace]):
    """Positions of shards without losses, made on request."""

    numbers: Sequence[int]
    offsets: ShardOffsets

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        return ShardStart(self.numbers[place], self.offsets)


@dataclass(frozen=True)
class ShardStart:
    """Position of one shard without losses: its number and the nearest record of known offset."""

    number: int
    offsets: ShardOffsets

    def at(self, given: int, book: BookWriter) -> State:
        return [*self.offsets.before(self.number, given)]

    def forget(self, given: int) -> None:
        pass


@dataclass(frozen=True)
class ShardPlace:
    """Position in one shard: shard number, nearest record with a known offset, and number of skipped records."""

    number: int
    offsets: ShardOffsets
    losses: ShardLosses

    def at(self, given: int, book: BookWriter) -> State:
        lost = self.losses.before(given)
        return [*self.offsets.before(self.number, given + lost), *([lost] if lost else [])]

    def forget(self, given: int) -> None:
        self.losses.forget(given)
