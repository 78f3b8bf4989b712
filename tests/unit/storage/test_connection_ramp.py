"""Opening many shards at once begins with a few connections, and with more as answers come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.storage import lanes
from aiostream_data.storage.aimd import FIRST
from aiostream_data.storage.lanes import lane_of
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.pool import OPENING, Pool, Server, may_open
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.wire_model import WireModel

SHARDS = 64


class SlowToConnect:
    """A loop's ``create_connection`` that makes connections when it is told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[None]] = []

    async def create_connection(self, make: Any, *args: Any, **kwargs: Any) -> tuple[None, Connection]:
        self.asked.append(asyncio.get_running_loop().create_future())
        await self.asked[-1]
        connection: Connection = make()
        connection._usable = True
        connection.idle_since = asyncio.get_running_loop().time()
        return None, connection

    async def a_round_trip_passes(self) -> int:
        """Let all that are being made be there; return how many are being made then."""
        made, self.asked = self.asked, []
        for each in made:
            each.set_result(None)
        for _ in range(20):
            await asyncio.sleep(0)
        return len(self.asked)


def test_a_pool_opens_a_few_connections_at_once_and_then_as_many_as_there_are(monkeypatch: Any) -> None:
    async def case() -> list[int]:
        slow = SlowToConnect()
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", slow.create_connection)
        pool = Pool(Server("host", 1), limit=SHARDS, connect_s=60.0)
        takers = [asyncio.create_task(pool.take()) for _ in range(SHARDS)]
        being_made = [await slow.a_round_trip_passes() for _ in range(6)]
        await asyncio.wait_for(asyncio.gather(*takers), 5)
        pool.close()
        return being_made

    assert asyncio.run(case()) == [OPENING, OPENING, 2 * OPENING, 4 * OPENING, 0, 0]
    assert [may_open(there_are) for there_are in (0, OPENING, 20, 64)] == [OPENING, OPENING, 20, 64]


def test_who_is_cancelled_in_line_ends_so_though_a_connection_comes_back_at_that_moment(monkeypatch: Any) -> None:
    async def case() -> None:
        slow = SlowToConnect()
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", slow.create_connection)
        pool = Pool(Server("host", 1), limit=1, connect_s=60.0)
        first = asyncio.create_task(pool.take())
        await asyncio.sleep(0)
        await slow.a_round_trip_passes()
        waiting = [asyncio.create_task(pool.take()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        pool.give_back(await first)
        await asyncio.wait(waiting[:1])
        assert waiting[0].cancelled()
        assert await asyncio.wait_for(waiting[1], 5) is first.result()
        pool.close()

    asyncio.run(case())


@pytest.mark.parametrize("dialect", ["s3", "http"])
@pytest.mark.parametrize("reader", ["plain", "library"])
def test_opening_64_shards_at_once_is_no_rush_of_64_requests(dialect: Any, reader: str) -> None:
    lanes._lanes._begin_anew()  # an earlier test may have used the port of this server
    wire = WireModel(first_byte_s=0.05)
    with leaves_nothing(), fault_server(dialect, where="process", wire=wire) as server:
        urls = [server.put(f"bucket/{number}", b"line\n") for number in range(SHARDS)]
        options = {**server.storage_options, "reader": reader, "hedge": False}
        with Dataset.from_text(urls, cycle_length=SHARDS, storage_options=options).open() as loader:
            assert list(loader) == ["line"] * SHARDS
        times = sorted(seen.time_s for seen in server.log() if seen.kind in ("get", "head"))
        first_round = [at for at in times if at < times[0] + wire.first_byte_s]
    assert len(times) == 2 * SHARDS
    assert len(first_round) <= FIRST


def test_what_a_library_reads_lets_more_be_asked_for_too() -> None:
    async def main(url: str, options: dict[str, Any]) -> float:
        stores = StoreSet(options, asyncio.to_thread)
        try:
            shard = await stores.info(url)
            await asyncio.gather(*(stores.read_into(shard, 0, memoryview(bytearray(5))) for _ in range(SHARDS)))
        finally:
            await stores.aclose()
        return lane_of(url, "").aimd.limit

    with leaves_nothing(), fault_server("http", wire=WireModel(first_byte_s=0.01)) as server:
        url = server.put("x", b"bytes")
        assert asyncio.run(main(url, {**server.storage_options, "reader": "library"})) > FIRST
