"""A store that asks a second time for a range whose answer is late, and uses the first that comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeAlias

from aiostream_data.errors import StorageError
from aiostream_data.records import ShardRef
from aiostream_data.storage.base import Store
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.hedging import Hedging

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
        await self.inner.aclose()

    async def _read_with_a_second(self, shard: ShardRef, start: int, buffer: memoryview, wait_s: float) -> None:
        first = asyncio.ensure_future(self.inner.read_into(shard, start, buffer))
        second: asyncio.Future[None] | None = None
        lease: object | None = None
        try:
            await asyncio.wait([first], timeout=wait_s)
            lease = None if first.done() else self.room(len(buffer))
            if lease is None or not self.hedging.begin(len(buffer)):
                await first
                return
            self.counters.hedges += 1
            self.counters.hedged_nbytes += len(buffer)
            spare = memoryview(bytearray(len(buffer)))
            second = asyncio.ensure_future(self.inner.read_into(shard, start, spare))
            if await _first_of(first, second) is second:
                await _end(first)  # before the buffer is written here: it writes there until it has ended
                buffer[:] = spare
                self.hedging.won += 1
                self.counters.hedges_won += 1
        finally:
            await _end(first)
            if second is not None:
                await _end(second)
            del lease  # nothing writes into the second buffer any more


async def _first_of(first: asyncio.Future[None], second: asyncio.Future[None]) -> asyncio.Future[None]:
    """Return the one that succeeds first.

    Raises:
        StorageError: Both failed; the first one's error.
    """
    await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
    done, other = (first, second) if first.done() else (second, first)
    if done.exception() is None:
        return done
    try:
        await other
    except StorageError:
        await first
        raise
    return other


async def _end(reading: asyncio.Future[None]) -> None:
    """Cancel what is not done, and wait until it writes nowhere any more."""
    if not reading.done():
        reading.cancel()
    await asyncio.wait([reading])
    if not reading.cancelled():
        reading.exception()  # somebody has heard of it, or need not
