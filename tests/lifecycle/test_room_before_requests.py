"""Bytes are taken from the budget before a range is asked for, whoever asks, and then read as fast as they come."""

from __future__ import annotations

import asyncio
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from collections.abc import Sequence
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data._engine import resources
from aiostream_data._engine.memory.budget import QUEUES, RANGES, Budget
from aiostream_data._engine.sources.shard_ranges import HEADROOM
from aiostream_data._native import Charge
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import memory, stores
from aiostream_data.storage.base import RunBlocking, Store, StoreOptions
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import open_store, register_store
from aiostream_data.storage.verifying import counters_of
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.wire_model import WireModel

LINES = b"".join(b"%07d\n" % number for number in range(300_000))  # 2.4 MB
LIMIT = 16 << 20


class Ledger(Budget):
    """A budget that remembers what it gave to ranges."""

    last: Ledger

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.granted = 0
        Ledger.last = self

    def charge(self, nbytes: int, holder: str = QUEUES) -> Charge:
        self.granted += nbytes if holder == RANGES else 0
        return super().charge(nbytes, holder)


class Gauge:
    """Stands before a store, and holds what is asked for against what was taken from the budget.

    Attributes:
        headroom: Bytes taken for each range that are not asked for.
        asked, requests: Bytes and ranges asked for so far.
        in_flight, most_in_flight: Requests on their way now, and the most at once.
        without_room: Requests that nothing had been taken for.
    """

    def __init__(self, inner: Store, headroom: int = 0) -> None:
        self.inner = inner
        self.headroom = headroom
        self.asked = self.requests = self.in_flight = self.most_in_flight = self.without_room = 0
        self.counters = counters_of(inner)

    async def info(self, url: str) -> ShardRef:
        return await self.inner.info(url)

    async def glob(self, pattern: str) -> Sequence[ShardRef]:
        return await self.inner.glob(pattern)

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        self.asked += len(buffer)
        self.requests += 1
        self.without_room += self.asked > Ledger.last.granted - self.headroom * self.requests
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.inner.read_into(shard, start, buffer)
        finally:
            self.in_flight -= 1

    async def aclose(self) -> None:
        await self.inner.aclose()


@pytest.fixture
def gauges(monkeypatch: pytest.MonkeyPatch) -> list[Gauge]:
    """The gauges of all stores that are opened."""
    made: list[Gauge] = []

    def open_gauged(scheme: str, options: StoreOptions, run_blocking: RunBlocking) -> Store:
        made.append(Gauge(open_store(scheme, options, run_blocking)))
        return made[-1]

    monkeypatch.setattr(stores, "open_store", open_gauged)
    monkeypatch.setattr(resources, "Budget", Ledger)
    return made


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sockets whose reading was paused."""
    paused: list[Any] = []
    pause = _SelectorSocketTransport.pause_reading

    def noted(transport: Any) -> None:
        paused.append(transport)
        pause(transport)

    monkeypatch.setattr(_SelectorSocketTransport, "pause_reading", noted)
    return paused


def puts(server: FaultServer, count: int, content: bytes) -> list[str]:
    return [server.put(f"bucket/{number:03}", content) for number in range(count)]


def test_every_range_that_is_read_ahead_has_room_before_it_is_asked_for(gauges: list[Gauge], pauses: list[Any]) -> None:
    with leaves_nothing(), fault_server("http", wire=WireModel(first_byte_s=0.005)) as server:
        lines = Dataset.from_text(
            puts(server, 8, LINES), encoding=None, cycle_length=4, storage_options=server.storage_options
        )
        with lines.batch(1_000).open(memory_limit=LIMIT) as loader:
            assert sum(len(batch) for batch in loader) == 8 * 300_000
    assert gauges[0].asked == 8 * len(LINES)
    assert gauges[0].most_in_flight > 1
    assert gauges[0].without_room == 0
    assert Ledger.last.peak <= LIMIT
    assert not pauses


def test_parts_of_one_object_have_room_together(gauges: list[Gauge], pauses: list[Any]) -> None:
    content = bytes(range(256)) * (64 << 10)  # 16 MiB
    with leaves_nothing(), fault_server("http", wire=WireModel(first_byte_s=0.02)) as server:
        objects = Dataset.from_files(puts(server, 2, content), storage_options=server.storage_options)
        with objects.open(memory_limit=6 * len(content)) as loader:
            assert all(element["data"] == content for element in loader)
    assert gauges[0].most_in_flight > 1
    assert gauges[0].requests > 2
    assert gauges[0].without_room == 0
    assert not pauses


def test_a_second_request_for_what_is_late_has_room_of_its_own(gauges: list[Gauge]) -> None:
    def hedges() -> int:
        with leaves_nothing(), fault_server("http", wire=WireModel(first_byte_s=0.02)) as server:
            urls = puts(server, 120, LINES[:100_000])
            server.set_rules(Rule(Fault(delay_s=2.0), kind="get", after=110, times=1))
            objects = Dataset.from_files(urls, read_ahead=4, storage_options=server.storage_options)
            with objects.open(memory_limit=LIMIT) as loader:
                assert sum(1 for _ in loader) == 120
            return int(loader.stats().storage["hedges"])

    for _ in range(5):  # a machine that pauses spends the second requests on others, given up before they asked
        begun = hedges()
        assert 120 * 100_000 <= gauges[-1].asked <= (120 + begun) * 100_000
        assert gauges[-1].without_room == 0
        if gauges[-1].asked > 120 * 100_000:
            return
    pytest.fail("no second request was sent for an answer that was 2 s late")


class Held(MemoryStore):
    """Answers the first request only when nothing else has been asked for during many rounds of the loop."""

    def __init__(self) -> None:
        self.requests = 0
        self.beside_the_first = -1

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        self.requests += 1
        if self.requests == 1:
            for _ in range(1_000):
                await asyncio.sleep(0)
            self.beside_the_first = self.requests - 1
            Taken.by_somebody_else.end()
        await super().read_into(shard, start, buffer)


class Taken(Ledger):
    """A budget all of which somebody else holds."""

    by_somebody_else: Charge

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        Taken.by_somebody_else = self.charge(limit, "somebody else")


def test_while_the_budget_has_no_room_nothing_is_asked_for_but_what_the_order_waits_for(
    memory_objects: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [f"held://room/{number}" for number in range(8)]
    for url in urls:
        memory.put(url.replace("held", "memory"), LINES)
    held = Held()
    register_store("held", lambda options, run_blocking: held)
    monkeypatch.setattr(resources, "Budget", Taken)
    try:
        lines = Dataset.from_text(urls, encoding=None, cycle_length=4, read_ahead=4).batch(1_000)
        with leaves_nothing(), lines.open(memory_limit=LIMIT) as loader:
            assert sum(len(batch) for batch in loader) == 8 * 300_000
    finally:
        register_store("held", None)
    assert held.beside_the_first == 0
    assert held.requests > 8


def test_rows_that_were_held_are_read_again_with_their_bytes_noted(gauges: list[Gauge]) -> None:
    with leaves_nothing(), fault_server("http") as server:
        lines = Dataset.from_text(puts(server, 4, LINES), encoding=None, storage_options=server.storage_options)
        shuffled = lines.shuffle(5_000, seed=3).batch(1_000)
        with shuffled.open(memory_limit=LIMIT) as loader:
            for _, _ in zip(range(700), loader, strict=False):
                pass
            state = loader.state_dict()
        with shuffled.open(state, memory_limit=LIMIT) as loader:
            assert sum(len(batch) for batch in loader) == 4 * 300_000 - 700_000
    again = gauges[-1]
    assert again.asked > len(LINES)
    assert again.without_room == 0


def test_the_first_range_of_each_shard_is_taken_with_its_headroom(gauges: list[Gauge]) -> None:
    with leaves_nothing(), fault_server("http") as server:
        lines = Dataset.from_text(puts(server, 3, LINES), encoding=None, storage_options=server.storage_options)
        with lines.open(memory_limit=LIMIT) as loader:
            assert sum(1 for _ in loader) == 3 * 300_000
    assert Ledger.last.granted == gauges[0].asked + HEADROOM * gauges[0].requests
