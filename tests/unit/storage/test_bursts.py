"""Groups of small objects are read in bursts: one failing object does not disturb the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import ObjectNotFoundError, StorageError, StoreBusyError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import late_reads
from aiostream_data.storage.stores import LATE, StoreSet
from aiostream_data.storage.wire import burst, route
from aiostream_data.storage.wire.burst import read_signed
from aiostream_data.storage.wire.object_get import ObjectGet
from aiostream_data.storage.wire.route import Route, take_route_options
from aiostream_data.testing.fault_catalogue import BREAKS, LIES, ODDITIES, REFUSALS, STALLS
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule

COUNT = 24
BAD = 7
"""Number of the object with a fault."""

Case = Callable[[StoreSet, "Objects"], Awaitable[Any]]


class Objects:
    """Objects on a fault server, and a buffer for them."""

    def __init__(self, server: FaultServer, nbytes: int = 3000) -> None:
        self.server = server
        self.contents = [bytes([number]) * (nbytes + number) for number in range(COUNT)]
        urls = [server.put(f"bucket/{number:02}", content) for number, content in enumerate(self.contents)]
        self.shards = [ShardRef(url, len(content)) for url, content in zip(urls, self.contents, strict=True)]
        self.bounds = np.cumsum([0, *map(len, self.contents)], dtype=np.int64)
        self.buffer = np.zeros(int(self.bounds[-1]), np.uint8)

    async def read(self, stores: StoreSet) -> list[Exception | None]:
        """Read all objects with the ordinary read once, so that connections are open, and then in a burst."""
        await stores.read_into(self.shards[-1], 0, memoryview(bytearray(10)))
        self.buffer[:] = 0
        return await stores.read_objects(self.shards, self.places())

    def places(self, buffer: np.ndarray | None = None) -> list[memoryview]:
        """Return a view for each object, of ``buffer`` or, without an argument, of ``self.buffer``."""
        view = (self.buffer if buffer is None else buffer).data
        return [view[start:stop] for start, stop in pairwise(self.bounds.tolist())]

    def was_read(self, number: int) -> bool:
        return self.buffer[self.bounds[number] : self.bounds[number + 1]].tobytes() == self.contents[number]


@pytest.fixture(params=["thread", "loop"], autouse=True)
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send requests from the native thread, or from the event loop as with TLS."""
    if request.param == "loop":
        monkeypatch.setattr(route, "HAVE_NATIVE", False)


@pytest.fixture(params=["s3", "gcs", "http"])
def objects(request: pytest.FixtureRequest) -> Iterator[Objects]:
    with fault_server(request.param) as server:
        yield Objects(server)


@pytest.fixture
def http_objects() -> Iterator[Objects]:
    with fault_server("http") as server:
        yield Objects(server)


def use(objects: Objects, case: Case, **options: Any) -> Any:
    async def main() -> Any:
        stores = StoreSet({**objects.server.storage_options, **options}, asyncio.to_thread)
        try:
            return await case(stores, objects)
        finally:
            await stores.aclose()

    return asyncio.run(main())


def test_all_objects_of_a_burst_are_read_with_one_request_each(objects: Objects) -> None:
    async def case(stores: StoreSet, objects: Objects) -> Any:
        outcomes = await objects.read(stores)
        return outcomes, stores.counters

    outcomes, counters = use(objects, case)
    assert outcomes == [None] * COUNT
    assert all(objects.was_read(number) for number in range(COUNT))
    assert counters.gets == counters.requests == COUNT + 1
    assert counters.retries == 0
    assert counters.nbytes == len(objects.buffer) + 10
    assert counters.connections_reused > 0


@pytest.mark.parametrize("nbytes", [0, 3000, 300 << 10])
def test_a_server_that_closes_every_connection_is_asked_once_for_each_object(nbytes: int) -> None:
    closing = Fault(headers=(("Connection", "close"),), close_after=True)
    with fault_server("s3") as server:
        objects = Objects(server, nbytes)
        objects.server.set_rules(Rule(closing))

        async def case(stores: StoreSet, objects: Objects) -> Any:
            return await objects.read(stores), stores.counters

        outcomes, counters = use(objects, case)
        assert outcomes == [None] * COUNT
        assert all(objects.was_read(number) for number in range(COUNT))
        assert (counters.requests, counters.retries) == (COUNT + 1, 0)
        assert counters.connections_reused == 0


@pytest.mark.parametrize("nbytes", [0, 1, 300 << 10])
def test_objects_of_any_size_are_read(nbytes: int) -> None:
    with fault_server("s3") as server:
        objects = Objects(server, nbytes)
        assert use(objects, lambda stores, objects: objects.read(stores)) == [None] * COUNT
        assert all(objects.was_read(number) for number in range(COUNT))


@pytest.mark.parametrize("name", [*REFUSALS, *BREAKS, *LIES, *ODDITIES])
@pytest.mark.parametrize("nbytes", [3000, 300 << 10])
def test_an_object_with_a_fault_is_read_again(name: str, nbytes: int) -> None:
    fault = {**REFUSALS, **BREAKS, **LIES, **ODDITIES}[name]
    with fault_server("http") as server:
        objects = Objects(server, nbytes)

        async def case(stores: StoreSet, objects: Objects) -> Any:
            await objects.read(stores)
            objects.server.set_rules(Rule(fault, key=f"bucket/{BAD:02}", times=1))
            objects.buffer[:] = 0
            return await stores.read_objects(objects.shards, objects.places())

        assert use(objects, case) == [None] * COUNT
        assert all(objects.was_read(number) for number in range(COUNT))


def test_only_a_missing_object_fails(objects: Objects) -> None:
    objects.server.delete(f"bucket/{BAD:02}")
    outcomes = use(objects, lambda stores, objects: objects.read(stores))
    assert isinstance(outcomes.pop(BAD), ObjectNotFoundError)
    assert outcomes == [None] * (COUNT - 1)
    assert all(objects.was_read(number) for number in range(COUNT) if number != BAD)


def test_an_object_that_stalls_is_late_and_the_others_are_read(
    http_objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (late_reads, burst):
        monkeypatch.setattr(module, "LEAST_PATIENCE_S", 0.2)
    http_objects.server.set_rules(Rule(STALLS["stalls at middle"], key=f"bucket/{BAD:02}"))
    outcomes = use(http_objects, lambda stores, objects: objects.read(stores))
    assert outcomes.pop(BAD) is LATE
    assert outcomes == [None] * (COUNT - 1)


def test_an_object_refused_for_its_rate_slows_the_lane_down(http_objects: Objects) -> None:
    http_objects.server.set_rules(Rule(Fault(status=503, code="SlowDown"), key=f"bucket/{BAD:02}", times=1))

    async def case(stores: StoreSet, objects: Objects) -> Any:
        return await objects.read(stores), stores.counters

    outcomes, counters = use(http_objects, case)
    assert outcomes == [None] * COUNT
    assert counters.throttled == 1
    assert counters.retries == 1
    assert counters.requests == COUNT + 2


def test_the_error_of_the_ordinary_read_is_reported(http_objects: Objects) -> None:
    http_objects.server.set_rules(Rule(Fault(status=503, code="SlowDown"), key=f"bucket/{BAD:02}"))
    outcomes = use(http_objects, lambda stores, objects: objects.read(stores), retry_attempts=1)
    assert isinstance(outcomes[BAD], StoreBusyError)


def test_rate_limits_of_the_user_apply_to_groups(http_objects: Objects) -> None:
    async def case(stores: StoreSet, objects: Objects) -> Any:
        return await objects.read(stores), stores.counters

    outcomes, counters = use(http_objects, case, max_requests_per_second=1e6)
    assert outcomes == [None] * COUNT
    assert counters.requests == COUNT + 1


def test_few_connections_read_all_objects(http_objects: Objects) -> None:
    async def case(stores: StoreSet, objects: Objects) -> Any:
        return await objects.read(stores), stores.counters

    outcomes, counters = use(http_objects, case, max_connections=2)
    assert outcomes == [None] * COUNT
    assert counters.connections_opened <= 2


def test_bursts_at_the_same_time_share_the_connections(http_objects: Objects) -> None:
    async def case(stores: StoreSet, objects: Objects) -> Any:
        await objects.read(stores)
        buffers = [np.zeros_like(objects.buffer) for _ in range(6)]
        reads = [stores.read_objects(objects.shards, objects.places(buffer)) for buffer in buffers]
        outcomes = await asyncio.gather(*reads)
        return outcomes, [buffer.tobytes() == objects.buffer.tobytes() for buffer in buffers]

    outcomes, are_equal = use(http_objects, case, max_connections=3)
    assert outcomes == [[None] * COUNT] * 6
    assert all(are_equal)


@pytest.mark.parametrize("nbytes", [3000, 300 << 10])
def test_a_cancelled_burst_writes_nothing_any_more(nbytes: int) -> None:
    with fault_server("http") as server:
        objects = Objects(server, nbytes)

        async def case(stores: StoreSet, objects: Objects) -> Any:
            await objects.read(stores)
            objects.server.set_rules(Rule(Fault(stall_at="middle", stall_s=0.3)))
            objects.buffer[:] = 0
            reading = asyncio.ensure_future(stores.read_objects(objects.shards, objects.places()))
            while not objects.buffer.any():
                await asyncio.sleep(0.001)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            objects.buffer[:] = 0
            objects.server.set_rules()
            other = np.zeros_like(objects.buffer)
            outcomes = await stores.read_objects(objects.shards, objects.places(other))
            return outcomes, other.tobytes()

        outcomes, data = use(objects, case)
        assert outcomes == [None] * COUNT
        assert data == b"".join(objects.contents)
        assert not objects.buffer.any()


def test_closing_the_stores_ends_a_burst(http_objects: Objects) -> None:
    async def case(stores: StoreSet, objects: Objects) -> Any:
        await objects.read(stores)
        objects.server.set_rules(Rule(Fault(stall_at="middle")))
        objects.buffer[:] = 0
        reading = asyncio.ensure_future(stores.read_objects(objects.shards, objects.places()))
        while not objects.buffer.any():
            await asyncio.sleep(0.001)
        await stores.aclose()
        return await reading

    outcomes = use(http_objects, case, retry_attempts=1)
    assert len(outcomes) == COUNT
    assert any(isinstance(outcome, (StorageError, RuntimeError)) for outcome in outcomes)


def test_a_deadline_ends_a_burst_of_a_silent_store(http_objects: Objects) -> None:
    async def case(stores: StoreSet, objects: Objects) -> Any:
        await objects.read(stores)
        objects.server.set_rules(Rule(Fault(stall_at="start")))
        return await stores.read_objects(objects.shards, objects.places())

    outcomes = use(http_objects, case, retry_total_s=0.5)
    assert {type(outcome).__name__ for outcome in outcomes} == {"StoreTimeoutError"}


def no_requests(signing: str) -> Mapping[int, ObjectGet]:
    raise AssertionError(f"no object must be requested with {signing!r}")


def test_without_credentials_no_object_is_requested() -> None:
    async def sign() -> str:
        raise OSError("the credentials cannot be renewed")

    assert asyncio.run(read_signed(Route(*take_route_options({})), sign, no_requests)) == {}


def test_under_rate_limits_of_the_user_nobody_asks_for_credentials() -> None:
    asked: list[bool] = []

    async def sign() -> str:
        asked.append(True)
        return "key"

    route = Route(*take_route_options({"max_requests_per_second": 5.0}))
    assert asyncio.run(read_signed(route, sign, no_requests)) == {}
    assert asked == []
