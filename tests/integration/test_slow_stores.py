"""Stores that slow down without refusing a request get as many requests as they serve well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from leaks import leaves_nothing
from slowing_server import NBYTES, slowing_server

from aiostream_data import Dataset
from aiostream_data.metrics.report import LoaderStats
from aiostream_data.storage.aimd import FIRST
from aiostream_data.storage.lanes import lane_of
from aiostream_data.storage.stores import StoreSet

READERS = 48
BEYOND = 8
LATENCY_S = 0.03
DISTANT_S = 0.12
"""Latency with which 48 readers leave the processor mostly idle."""
PATIENCE_S = 20.0


async def reading(url: str, seconds: float, has_settled: Callable[[], bool] = lambda: True, **options: object) -> float:
    """Read an object with 48 readers all the time, until the gate has settled. Then return the requests per second."""
    stores = StoreSet(options, asyncio.to_thread)
    shard = await stores.info(url)
    done, is_over = 0, False

    async def read() -> None:
        nonlocal done
        buffer = memoryview(bytearray(NBYTES))
        while not is_over:
            await stores.read_into(shard, 0, buffer)
            done += 1

    async def measure() -> float:
        nonlocal is_over
        began = monotonic()
        while not has_settled() and monotonic() - began < PATIENCE_S:
            await asyncio.sleep(0.1)
        before, began = done, monotonic()
        await asyncio.sleep(seconds)
        is_over = True
        return (done - before) / (monotonic() - began)

    try:
        async with asyncio.TaskGroup() as group:
            measured = group.create_task(measure())
            for _ in range(READERS):
                group.create_task(read())
    finally:
        await stores.aclose()
    return measured.result()


def test_the_reader_settles_near_the_number_of_requests_that_a_store_serves_without_slowing_down() -> None:
    with leaves_nothing():
        with slowing_server(LATENCY_S, BEYOND) as url:
            best = asyncio.run(reading(url, 2.0, max_connections=BEYOND))
        with slowing_server(LATENCY_S, BEYOND) as url:
            lane = lane_of(url, "")
            limits: list[int] = []  # at first, the limit grows

            def has_settled() -> bool:
                limits.append(lane.limit)
                return max(limits) > 2 * BEYOND >= lane.limit

            settled = asyncio.run(reading(url, 4.0, has_settled))
    # 48 requests in flight reach a sixth. The simulated stores of the unit tests require 0.8 of the best.
    assert settled >= 0.5 * best, f"{settled:.0f} requests/s, and {best:.0f} with the best number of connections"
    assert BEYOND / 2 <= lane.limit <= 2 * BEYOND
    assert lane.aimd.throttled == 0
    assert lane.in_flight == 0


def test_a_store_with_latency_and_without_a_limit_is_driven_to_the_number_of_readers() -> None:
    with leaves_nothing(), slowing_server(DISTANT_S, 10_000) as url:
        lane = lane_of(url, "")
        settled = asyncio.run(reading(url, 2.0, lambda: lane.limit >= READERS))
    assert settled >= 0.7 * READERS / DISTANT_S
    assert lane.limit >= READERS


def stats_after_reading(urls: list[str]) -> LoaderStats:
    with Dataset.from_fixed_length(urls, NBYTES, cycle_length=len(urls)).open() as loader:
        assert len(list(loader)) == len(urls)
        return loader.stats()


def test_the_statistics_of_a_loader_show_the_limit_of_each_host() -> None:
    with leaves_nothing(), slowing_server(0.01, 10_000) as url:
        stats = stats_after_reading([url] * 64)
    limit = stats.request_limits[url.removesuffix("/object")]
    assert limit == lane_of(url, "").limit > FIRST
    assert stats.as_dict()["request_limits"] == stats.request_limits


def test_a_loader_of_local_files_has_no_request_limits() -> None:
    with Dataset.range(3).open() as loader:
        list(loader)
        assert loader.stats().request_limits == {}
