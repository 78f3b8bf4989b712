"""Caps on requests, bytes and connections hold for all loaders of the process together."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from math import inf, nan
from time import monotonic
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.errors import PlanError, StoreUnreachableError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import memory
from aiostream_data.storage.capped_store import CappedStore
from aiostream_data.storage.caps import Caps, has_rates, take_cap_options
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.meters import Meter, meter_of
from aiostream_data.storage.retry import RetryingStore, RetryPolicy
from aiostream_data.storage.stores import StoreSet
from aiostream_data.storage.token_bucket import BURST_S, TokenBucket
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.wire_model import WireModel

# -- the decision


def test_after_a_pause_a_burst_goes_at_once_and_then_one_after_another() -> None:
    bucket = TokenBucket()
    waits = [bucket.reserve(100.0, 1, per_second=8.0) for _ in range(5)]
    assert waits == [0.0, 0.0, 0.0, 0.125, 0.25]
    assert bucket.reserve(100.5, 1, per_second=8.0) == 0.0


def test_whatever_the_moments_no_more_goes_in_any_time_than_the_rate_and_one_burst() -> None:
    bucket, rate, now, sent = TokenBucket(), 50.0, 1_000.0, list[float]()
    for step in range(400):
        now += 0.001 if step % 100 < 50 else 0.05
        sent.append(now + bucket.reserve(now, 1, rate))
    assert sent == sorted(sent)
    for first in range(0, 400, 7):
        for last in range(first, 400, 11):
            assert last - first <= rate * (sent[last] - sent[first] + BURST_S) + 1e-6


def test_what_is_larger_than_the_bucket_goes_and_those_behind_it_wait() -> None:
    bucket = TokenBucket()
    assert bucket.reserve(0.0, 10_000_000, per_second=1e6) == 0.0
    assert bucket.reserve(0.0, 1, per_second=1e6) == pytest.approx(10.0 - BURST_S)


def test_loaders_with_rates_of_their_own_share_the_line() -> None:
    bucket = TokenBucket(free_at=10.0)
    waits = [bucket.reserve(10.0, 1, per_second) for per_second in (10.0, 100.0, 10.0)]
    assert waits == pytest.approx([0.0, 0.1, 0.11], abs=BURST_S)
    assert bucket.free_at - 10.0 <= 0.21


def test_what_was_given_back_is_there_for_the_next() -> None:
    bucket = TokenBucket(free_at=5.0)
    bucket.reserve(0.0, 4, per_second=2.0)
    bucket.give_back(4, per_second=2.0)
    assert bucket.free_at == 5.0


# -- options


def test_rates_are_taken_out_of_the_options_and_connections_stay() -> None:
    options: dict[str, Any] = {
        "max_requests_per_second": 5,
        "max_bytes_per_second": 1e6,
        "max_connections": 4,
        "key": 1,
    }
    assert take_cap_options(options) == Caps(requests_per_s=5.0, nbytes_per_s=1e6, connections=4)
    assert options == {"max_connections": 4, "key": 1}
    assert not take_cap_options({})


@pytest.mark.parametrize("name", ["max_requests_per_second", "max_bytes_per_second", "max_connections"])
@pytest.mark.parametrize("value", [0, -1, True, "5", nan, inf, [1]])
def test_a_cap_that_is_no_number_above_zero_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(PlanError, match=name):
        take_cap_options({name: value})


@pytest.mark.parametrize("scheme", ["memory", "http"])
def test_a_wrong_cap_is_an_error_of_the_plan_when_the_loader_opens(memory_objects: None, scheme: str) -> None:
    memory.put("memory://x.txt", b"one\n")
    dataset = Dataset.from_text(f"{scheme}://x.txt", storage_options={"max_requests_per_second": 0})
    with pytest.raises(PlanError, match="max_requests_per_second must be a number above 0, got 0"), dataset.open():
        pass


# -- meters


def test_who_stops_waiting_counts_for_nothing() -> None:
    async def case() -> None:
        meter, caps = Meter(clock=lambda: 0.0), Caps(requests_per_s=0.001, nbytes_per_s=1.0, connections=1)
        await meter.enter(caps, 0)
        waiting = asyncio.create_task(meter.enter(caps, 100))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        meter.leave(caps)
        assert meter.in_flight == 0
        quick = Caps(connections=1)
        await asyncio.wait_for(meter.enter(quick, 0), 5)
        meter.leave(quick)

    asyncio.run(case())


def test_places_are_given_in_the_order_they_were_asked_for_and_none_is_lost_to_who_left() -> None:
    async def case() -> list[int]:
        meter, caps, order = Meter(), Caps(connections=2), list[int]()

        async def request(number: int) -> None:
            async with meter.passage(caps, 0):
                order.append(number)
                assert meter.in_flight <= 2
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(request(number)) for number in range(8)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        await asyncio.wait(tasks)
        assert meter.in_flight == 0
        return order

    assert asyncio.run(case()) == [0, 1, 2, 4, 5, 6, 7]


def test_what_a_cap_made_wait_is_no_time_in_which_the_store_failed() -> None:
    class FailsOnce(MemoryStore):
        failed = False

        async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
            if not self.failed:
                self.failed = True
                raise StoreUnreachableError(shard.url, "for once")

    async def case() -> int:
        caps = Caps(requests_per_s=2.0)
        store = RetryingStore(CappedStore(FailsOnce(), caps, "waits"), RetryPolicy(base_s=0.0, total_s=0.2))
        meter = meter_of("memory://x", "waits")
        for _ in range(2):
            await meter.enter(caps, 0)
        await store.read_into(ShardRef("memory://x", 1), 0, memoryview(bytearray(1)))
        return store.counters.retries

    assert asyncio.run(case()) == 1


def test_with_a_cap_on_requests_or_bytes_nothing_is_asked_for_twice() -> None:
    assert has_rates({"max_requests_per_second": 1})
    assert has_rates({"max_bytes_per_second": 1})
    assert not has_rates({"max_connections": 1, "max_bytes_per_second": None})


def in_two_threads(server: FaultServer, reads: int, nbytes: int, **options: Any) -> float:
    """Read beside each other through two sets of stores with loops of their own; return the seconds it took."""
    url = server.put("capped", b"x" * nbytes)

    async def main() -> None:
        stores = StoreSet({**server.storage_options, **options, "hedge": False}, asyncio.to_thread)
        try:
            shard = await stores.info(url)
            buffers = [bytearray(nbytes) for _ in range(reads)]
            await asyncio.gather(*(stores.read_into(shard, 0, memoryview(buffer)) for buffer in buffers))
            assert all(buffer == b"x" * nbytes for buffer in buffers)
        finally:
            await stores.aclose()

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(2)]
    began = monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return monotonic() - began


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_two_loaders_keep_to_one_cap_on_requests(reader: str) -> None:
    with leaves_nothing(), fault_server("http") as server:
        took_s = in_two_threads(server, 15, 10, max_requests_per_second=40, reader=reader)
        requests = server.counters().all_requests
    assert requests == 2 * 16
    assert took_s >= (requests - 1) / 40 - BURST_S


def test_two_loaders_keep_to_one_cap_on_bytes() -> None:
    with leaves_nothing(), fault_server("http") as server:
        assert in_two_threads(server, 4, 100_000, max_bytes_per_second=1_000_000) >= 7 * 0.1 - BURST_S


def test_two_loaders_keep_to_one_cap_on_connections() -> None:
    with leaves_nothing(), fault_server("http", wire=WireModel(first_byte_s=0.01)) as server:
        in_two_threads(server, 15, 10, max_connections=3)
        assert server.counters().max_in_flight <= 3


@pytest.mark.parametrize("scheme", ["memory"])
def test_caps_hold_for_stores_without_gates_of_their_own(memory_objects: None, scheme: str) -> None:
    memory.put("memory://capped/x", b"abc")

    async def main() -> float:
        stores = StoreSet({"max_requests_per_second": 40.0}, asyncio.to_thread)
        began, buffer = monotonic(), bytearray(3)
        shard = await stores.info(f"{scheme}://capped/x")  # the first request, from which the rate counts
        for _ in range(20):
            await stores.read_into(shard, 0, memoryview(buffer))
        assert buffer == b"abc"
        await stores.aclose()
        return monotonic() - began

    assert asyncio.run(main()) >= 20 / 40 - BURST_S


def test_a_meter_is_the_same_for_all_keys_of_a_bucket_and_for_all_paths_of_a_host() -> None:
    assert meter_of("s3://b/x/y", "e") is meter_of("s3://b/z", "e")
    assert meter_of("s3://b/x/y", "e") is not meter_of("s3://b/x/y", "other")
    assert meter_of("https://u:p@h/a", "") is meter_of("https://h/b?c", "")


FORKS = """
import os, asyncio
from aiostream_data.storage import lanes, meters
from aiostream_data.storage.capped_store import CappedStore
from aiostream_data.storage.caps import Caps

async def main():
    lane, meter = lanes.lane_of("s3://b/x/y", ""), meters.meter_of("s3://b/x/y", "")
    async with lane.passage(), meter.passage(Caps(connections=1), 0):
        with lanes._lanes._lock, meters._meters._lock:
            child = os.fork()
            if child == 0:
                fresh = lanes.lane_of("s3://b/x/y", ""), meters.meter_of("s3://b/x/y", "")
                os._exit([each.in_flight for each in fresh] != [0, 0])
        return os.waitpid(child, 0)[1]

raise SystemExit(asyncio.run(main()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_waits_for_no_request_of_its_parent() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS]
    assert subprocess.run(command, timeout=30, check=False).returncode == 0
