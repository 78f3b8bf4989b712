"""A store that asks a second time for a range whose answer is late, and uses the first that comes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.alarms import Alarms
from aiostream_data.storage.base import Store
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.hedging import Hedging
from aiostream_data.storage.racing import first_of_two

Room: TypeAlias = Callable[[int], object | None]
"""``room(nbytes)`` returns what keeps room for so many bytes while it is held; None where there is none."""


def any_room(nbytes: int) -> object:
    """Have room for everything."""
    return nbytes


@dataclass(slots=True)
class HedgingStore:
    """Wraps a store; owns it and closes it. See :mod:`.hedging` for when it asks twice.

    A second answer needs a buffer of its own, of which there are no more than a fiftieth of all bytes, and no longer
    than until either is there.

    Attributes:
        room: Keeps room for a second answer; without any, nothing is asked for twice.
        counters: Of the store: what was asked for twice is added.
        clock: Monotonic seconds.
    """

    inner: Store
    hedging: Hedging = field(default_factory=Hedging)
    room: Room = any_room
    counters: StorageCounters = field(default_factory=StorageCounters)
    clock: Callable[[], float] = monotonic
    _alarms: Alarms = field(default_factory=Alarms)

    async def info(self, url: str) -> ShardRef:
        return await self.inner.info(url)

    async def glob(self, pattern: str) -> list[ShardRef]:
        return await self.inner.glob(pattern)

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        wait_s = self.hedging.wait_s(len(buffer))
        began = self.clock()
        if wait_s is None:
            await self.inner.read_into(shard, start, buffer)
        else:
            await self._read_with_a_second(shard, start, buffer, wait_s)
        self.hedging.answered(len(buffer), self.clock() - began)

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
                buffer[:] = spare  # the first one has ended, and writes there no more
                self.hedging.won += 1
                self.counters.hedges_won += 1
        finally:
            del lease  # nothing writes into the second buffer any more
