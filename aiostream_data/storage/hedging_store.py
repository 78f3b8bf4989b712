"""Store wrapper that sends a second request for a late range and uses the first response."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.alarms import Alarms
from aiostream_data.storage.base import Store, reads_many
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.hedging import Hedging
from aiostream_data.storage.racing import first_of_two

Room: TypeAlias = Callable[[int], object | None]
"""``room(nbytes)`` returns None if the memory is full, else a lease, which reserves memory until the lease is
deleted."""


def any_room(nbytes: int) -> object:
    """Accept every reservation of memory, without a memory limit."""
    return nbytes


@dataclass(slots=True)
class HedgingStore:
    """Store wrapper that sends a second request for a late read. Closing the wrapper closes ``inner``.

    The module :mod:`.hedging` decides when to send a second request. Each second request needs a second buffer, which
    is released as soon as one of the two requests is answered.

    Attributes:
        room: Function that reserves memory for the second buffer. If the reservation fails, no second request is sent.
        counters: Counters of the store, to which second requests are added.
    """

    inner: Store
    hedging: Hedging = field(default_factory=Hedging)
    room: Room = any_room
    counters: StorageCounters = field(default_factory=StorageCounters)
    clock: Callable[[], float] = monotonic
    _alarms: Alarms = field(default_factory=Alarms)

    async def info(self, url: str) -> ShardRef:
        return await self.inner.info(url)

    async def glob(self, pattern: str) -> Sequence[ShardRef]:
        return await self.inner.glob(pattern)

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        wait_s = self.hedging.wait_s(len(buffer))
        began = self.clock()
        if wait_s is None:
            await self.inner.read_into(shard, start, buffer)
        else:
            await self._read_with_a_second(shard, start, buffer, wait_s)
        self.hedging.answered(len(buffer), self.clock() - began)

    async def read_objects(
        self, shards: Sequence[ShardRef], places: Sequence[memoryview]
    ) -> dict[int, Exception | None]:
        """Read many objects with one call, without second requests. See :class:`.ReadsMany`."""
        return await self.inner.read_objects(shards, places) if reads_many(self.inner) else {}

    async def aclose(self) -> None:
        self._alarms.close()
        await self.inner.aclose()

    async def _read_with_a_second(self, shard: ShardRef, start: int, buffer: memoryview, wait_s: float) -> None:
        spare = memoryview(b"")
        lease: object | None = None

        def second() -> Coroutine[Any, Any, None] | None:
            nonlocal spare, lease
            lease = self.room(len(buffer))
            if lease is None or not self.hedging.begin(len(buffer)):
                return None
            self.counters.hedges += 1
            self.counters.hedged_nbytes += len(buffer)
            spare = memoryview(bytearray(len(buffer)))
            return self.inner.read_into(shard, start, spare)

        try:
            if await first_of_two(self.inner.read_into(shard, start, buffer), wait_s, second, self._alarms):
                buffer[:] = spare  # the first read has ended and no longer writes to `buffer`
                self.hedging.won += 1
                self.counters.hedges_won += 1
        finally:
            del lease  # both reads have ended: release the memory of the second buffer
