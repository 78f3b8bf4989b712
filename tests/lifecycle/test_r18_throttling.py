"""R18: a store that refuses half of all requests is asked far less within two seconds, and as much as before later."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from itertools import pairwise

import pytest
from leaks import leaves_nothing
from reading import CONTENT, with_stores

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.faults import Fault, Kind, Rule
from aiostream_data.testing.object_api.dialect import DialectName
from aiostream_data.testing.wire_model import WireModel

BEFORE_S, BUSY_S = 2.0, 5.0
PATIENCE_S = 20.0
"""Maximum time in seconds from the last refusal until the rate of requests is back. A busy machine needs longer."""
NBYTES = 2_000
READERS = 48


def test_r18_requests_fall_by_half_within_two_seconds_and_come_back() -> None:
    """The phases are as long as they have to be for a rate: the issue's minute would say nothing more."""
    wire = WireModel(first_byte_s=0.03)
    with leaves_nothing(), fault_server("s3", where="process", wire=wire) as server:
        url = server.put("bucket/throttled/key", CONTENT)
        good = 0

        async def case(stores: StoreSet) -> tuple[int, int]:
            nonlocal good
            shard = await stores.info(url)
            is_over = False

            async def reader() -> None:
                nonlocal good
                buffer = bytearray(NBYTES)
                while not is_over:
                    await stores.read_into(shard, 0, memoryview(buffer))
                    assert buffer == CONTENT[:NBYTES]
                    good += 1

            async def per_second(seconds: float) -> float:
                before = good
                await asyncio.sleep(seconds)
                return (good - before) / seconds

            async def until_it_comes_back() -> None:
                nonlocal is_over
                await asyncio.sleep(0.5)
                before = await per_second(BEFORE_S - 0.5)
                await asyncio.sleep(BUSY_S)
                ends = time.monotonic() + PATIENCE_S
                while await per_second(1.0) <= 0.7 * before and time.monotonic() < ends:
                    pass
                is_over = True
                assert time.monotonic() < ends

            await asyncio.gather(until_it_comes_back(), *(reader() for _ in range(READERS)))
            return stores.counters.retries, stores.counters.failures

        busy = Rule(
            Fault(status=503, code="SlowDown"), kind="get", probability=0.5, from_s=BEFORE_S, until_s=BEFORE_S + BUSY_S
        )
        server.set_rules(busy)
        began = time.time()
        retries, failures = with_stores(server, case)
        times = [seen.time_s - began for seen in server.log() if seen.kind == "get"]

    def rate(from_s: float, until_s: float) -> float:
        return sum(from_s <= at < until_s for at in times) / (until_s - from_s)

    before = rate(0.5, BEFORE_S)
    assert rate(BEFORE_S + 2.0, BEFORE_S + BUSY_S) < 0.5 * before
    assert failures == 0
    assert 0 < retries <= len(times) - good  # each refusal was asked for again
    assert good > 0


def test_r18_no_two_clients_are_in_step() -> None:
    async def main(url: str, options: dict[str, object]) -> None:
        async def client(number: int) -> None:
            stores = StoreSet({**options, "retry_total_s": 30.0}, asyncio.to_thread)
            try:
                buffer = bytearray(100)
                await stores.read_into(ShardRef(url, len(CONTENT)), 100 * number, memoryview(buffer))
                assert buffer == CONTENT[100 * number : 100 * number + 100]
            finally:
                await stores.aclose()

        await asyncio.gather(*(client(number) for number in range(8)))

    with leaves_nothing(), fault_server("http") as server:
        url = server.put("key", CONTENT)
        server.set_rules(Rule(Fault(status=503), kind="get", per="range", times=4))
        asyncio.run(main(url, server.storage_options))
        last = sorted(seen.time_s for seen in server.log() if seen.kind == "get" and seen.status == 206)
    gaps = [after - before for before, after in pairwise(last)]
    assert last[-1] - last[0] > 0.2  # after four pauses with full jitter, up to 1.5 s in all
    assert sum(gap > 0.002 for gap in gaps) >= 5


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r18_a_store_that_says_how_long_is_left_alone_for_that_long(dialect: DialectName, reader: str) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/resting/key", CONTENT)
        server.set_rules(Rule(Fault(status=503, retry_after="1"), kind="get", times=1))
        assert with_stores(server, lambda stores: _beginning(stores, url), reader=reader) == CONTENT[:NBYTES]
        first, second = [seen.time_s for seen in server.log() if seen.kind == "get"]
    assert 1.0 <= second - first < 2.0


def test_r18_a_date_is_waited_for_as_seconds_are() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/dated/key", CONTENT)
        until = formatdate(time.time() + 3, usegmt=True)  # in whole seconds: two at least
        server.set_rules(Rule(Fault(status=503, retry_after=until), kind="get", times=1))
        assert with_stores(server, lambda stores: _beginning(stores, url)) == CONTENT[:NBYTES]
        first, second = [seen.time_s for seen in server.log() if seen.kind == "get"]
    assert 1.8 <= second - first < 4.0


@pytest.mark.parametrize(
    ("dialect", "kind"), [("s3", "list"), ("s3", "head"), ("gcs", "list"), ("gcs", "head"), ("http", "head")]
)
def test_r18_who_lists_or_looks_up_leaves_the_store_alone_as_well(dialect: DialectName, kind: Kind) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/looked-up/key", CONTENT)
        server.set_rules(Rule(Fault(status=503, retry_after="1"), kind=kind, times=1))

        async def case(stores: StoreSet) -> int:
            (shard,) = await stores.glob(f"{url[:-1]}*" if kind == "list" else url)
            assert shard.nbytes == len(CONTENT)
            return stores.counters.throttled

        assert with_stores(server, case) == 1
        first, second, *more = [seen.time_s for seen in server.log()]
    assert 1.0 <= second - first < 2.0
    assert not more


@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r18_refusals_in_chunks_are_refusals_and_nothing_is_left_to_the_library(dialect: DialectName) -> None:
    """As Amazon sends them: each would be sent again at once, and few of them would give up the plain path."""
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/in-chunks/key", CONTENT)
        server.set_rules(Rule(Fault(status=503, chunked=True), kind="get", times=4))

        async def case(stores: StoreSet) -> tuple[int, int]:
            assert await _beginning(stores, url) == CONTENT[:NBYTES]
            return stores.counters.throttled, stores.counters.gets

        assert with_stores(server, case) == (4, 5)
        log = [seen for seen in server.log() if seen.kind == "get"]
        assert len({seen.connection for seen in log}) == 1  # which an error does not end
    assert not any("user-agent" in seen.headers for seen in log)


async def _beginning(stores: StoreSet, url: str) -> bytes:
    buffer = bytearray(NBYTES)
    await stores.read_into(ShardRef(url, len(CONTENT)), 0, memoryview(buffer))
    return bytes(buffer)
