"""What a loader asked of its stores is counted exactly, and priced by the user's table."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from leaks import leaves_nothing
from reading import CONTENT, read, with_stores

from aiostream_data import Dataset, ShardCache
from aiostream_data.errors import PlanError, StorageError
from aiostream_data.metrics.request_prices import Prices
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import memory
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import register_store
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.latency_store import LatencyStore
from aiostream_data.testing.object_api.dialect import DialectName

PRICES = {"GET": 0.4, "HEAD": 0.4, "LIST": 5.0, "egress": 0.1}
LINES = b"".join(b"%04d\n" % number for number in range(1_000))


def ranges_read(server: FaultServer, count: int = 4, step: int = 1_000, **options: Any) -> StorageCounters:
    """Read some ranges of one object, one after another."""
    url = server.put("bucket/key", CONTENT)

    async def case(stores: StoreSet) -> StorageCounters:
        shard = ShardRef(url, len(CONTENT))
        for number in range(count):
            start = number * step
            assert await read(stores, shard, start, start + step) == CONTENT[start : start + step]
        return stores.counters

    return with_stores(server, case, **options)


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_every_request_is_counted_once_by_kind_on_both_paths(dialect: DialectName, reader: str) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/a/key", CONTENT)

        async def case(stores: StoreSet) -> StorageCounters:
            shard = await stores.info(url)
            await read(stores, shard, 0, 10)
            await read(stores, shard, 10, 30)
            if dialect != "http":
                await stores.glob(url.replace("key", "k*"))
            return stores.counters

        counters = with_stores(server, case, reader=reader)
        lists = 0 if dialect == "http" else 1
        assert (counters.gets, counters.heads, counters.lists) == (2, 1, lists)
        assert server.counters().all_requests == 3 + lists
        assert (counters.nbytes, counters.received_nbytes) == (30, 30)
        assert (counters.requests, counters.retries, counters.failures) == (3 + lists, 0, 0)


def test_connections_are_counted_by_whether_they_were_there() -> None:
    with leaves_nothing(), fault_server("http") as server:
        counters = ranges_read(server, 4)
        assert (counters.connections_opened, counters.connections_reused) == (1, 3)
        assert server.counters().connections == 1


def test_refusals_and_retries_are_counted() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        server.set_rules(Rule(Fault(status=503, code="SlowDown"), kind="get", times=3))
        counters = ranges_read(server, 2)
        assert (counters.gets, counters.retries, counters.throttled) == (5, 3, 3)
        assert (counters.timeouts, counters.failures) == (0, 0)
        assert counters.nbytes == counters.received_nbytes == 2_000


def test_silence_is_a_time_out() -> None:
    with leaves_nothing(), fault_server("http") as server:
        server.set_rules(Rule(Fault(stall_at="start"), kind="get", times=1))
        counters = ranges_read(server, 1, first_byte_timeout=0.2)
        assert (counters.gets, counters.timeouts, counters.retries, counters.throttled) == (2, 1, 1, 0)


def test_bytes_that_came_for_nothing_are_told_from_those_delivered() -> None:
    with leaves_nothing(), fault_server("http") as server:
        server.set_rules(Rule(Fault(ignore_range=True), kind="get", times=1))
        counters = ranges_read(server, 1, step=1_000)
        assert counters.nbytes == 1_000
        assert counters.received_nbytes >= 1_000


def test_what_fails_is_counted_as_failed() -> None:
    with leaves_nothing(), fault_server("http") as server:
        counters: list[StorageCounters] = []

        async def case(stores: StoreSet) -> None:
            with pytest.raises(StorageError):
                await stores.info(f"{server.endpoint_url}/missing")
            counters.append(stores.counters)

        with_stores(server, case)
        assert counters[0].failures == 1


def test_credentials_that_were_renewed_are_counted() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        server.set_rules(Rule(Fault(refuse="expired"), kind="get", times=1))
        assert ranges_read(server, 2).credentials_renewed == 1


def test_requests_that_have_to_wait_are_counted_with_their_seconds() -> None:
    with leaves_nothing(), fault_server("http") as server:
        server.set_rules(Rule(Fault(status=503, retry_after="1"), kind="get", times=1))
        shard = ShardRef(server.put("bucket/key", CONTENT), len(CONTENT))

        async def case(stores: StoreSet) -> StorageCounters:
            refused = asyncio.create_task(read(stores, shard, 0, 10))
            while not stores.counters.throttled:
                await asyncio.sleep(0)
            await read(stores, shard, 10, 20)  # while the store wants to be left alone
            await refused
            return stores.counters

        counters = with_stores(server, case)
        assert counters.waits >= 1
        assert counters.wait_s > 0.5


def run(dataset: Dataset[Any], **options: Any) -> Any:
    with dataset.open(**options) as loader:
        rows = sum(1 for _ in loader)
        return rows, loader


def files(server: FaultServer, count: int = 3) -> Dataset[Any]:
    for number in range(count):
        server.put(f"bucket/lines-{number}.txt", LINES)
    return Dataset.from_text("s3://bucket/lines-*.txt", storage_options=server.storage_options)


def test_a_loader_tells_requests_by_store_and_what_they_cost(tmp_path: Path) -> None:
    (tmp_path / "local.txt").write_bytes(LINES)
    with leaves_nothing(), fault_server("s3") as server:
        remote, local = files(server), Dataset.from_text(str(tmp_path / "*.txt"))
        _, loader = run(remote.concatenate(local), prices=PRICES)
        stats, report = loader.stats(), str(loader.report())
    s3 = stats.stores["s3"]
    assert (s3["gets"], s3["heads"], s3["lists"], s3["received_nbytes"]) == (3, 0, 1, 3 * len(LINES))
    assert stats.storage["nbytes"] == 4 * len(LINES) == s3["nbytes"] + stats.stores["file"]["nbytes"]
    assert stats.cost == pytest.approx(3 / 1_000 * 0.4 + 1 / 1_000 * 5.0 + 3 * len(LINES) / 1e9 * 0.1)
    assert stats.stores["file"]["gets"] == stats.stores["file"]["lists"] == 0  # costs nobody anything
    assert f"0 retries, 3 GET, 1 LIST; cost {stats.cost:.4g}" in report
    told = json.loads(json.dumps(stats.as_dict()))
    assert (told["cost"], told["stores"]["s3"]["gets"]) == (stats.cost, 3)


def test_what_was_asked_before_rows_were_blocked_stays_counted() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        with files(server).open(prices=PRICES) as loader:
            rows = iter(loader)
            next(rows)
            before = loader.stats()
            loader.block([("s3://bucket/lines-0.txt", 5)])
            assert sum(1 for _ in loader) == 2_998
        after = loader.stats()
    assert after.storage["lists"] == 2
    assert after.storage["gets"] > before.storage["gets"] > 0
    assert after.cost > before.cost > 0


def test_without_a_table_nothing_costs_anything() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        _, loader = run(files(server))
        assert loader.stats().cost == 0.0
        assert "cost" not in str(loader.report())


def test_what_processes_ask_for_is_counted_as_well() -> None:
    with leaves_nothing(), fault_server("s3", where="process") as server:
        dataset = files(server, 2)
        rows, loader = run(dataset.in_subprocess(), prices=PRICES)
        stats = loader.stats()
        assert rows == 2_000
        assert stats.stores["s3"]["gets"] == 2
        assert stats.stores["s3"]["lists"] == 1
        assert stats.cost > 0


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_the_shard_cache_gave_is_no_request(in_memory: bool, tmp_path: Path) -> None:
    with leaves_nothing(), fault_server("s3") as server:
        cache = ShardCache(None if in_memory else tmp_path, limit="32MB")
        dataset = files(server)
        first, second = (run(dataset, shard_cache=cache)[1].stats().storage for _ in range(2))
        assert (first["cache_hits"], first["cache_misses"], first["gets"]) == (0, 3, 3)
        assert first["cache_kept_nbytes"] == second["cache_nbytes"] == 3 * len(LINES)
        assert (second["cache_hits"], second["cache_misses"], second["gets"]) == (3, 0, 0)
        assert second["received_nbytes"] == second["cache_evictions"] == 0


def test_prices_are_per_thousand_requests_and_per_thousand_million_bytes() -> None:
    prices = Prices.of({"GET": 2.0, "gs://": {"LIST": 3.0}})
    assert prices is not None
    stores = {"s3": {"gets": 500, "lists": 1_000}, "gs": {"gets": 500, "lists": 2_000}}
    assert prices.cost(stores) == 1.0 + 6.0
    egress = Prices.of({"egress": 0.5})
    assert egress is not None
    assert egress.cost({"s3": {"received_nbytes": 3_000_000_000}}) == 1.5
    assert Prices.of(None) is None


@pytest.mark.parametrize(
    "table", [{"PUT": 1.0}, {"GET": -1}, {"GET": "free"}, {"GET": True}, {"s3": {"GET": float("inf")}}, 3, [("GET", 1)]]
)
def test_a_table_that_makes_no_sense_is_refused_where_it_is_given(table: Any) -> None:
    with pytest.raises(PlanError, match="pric"):
        Dataset.range(3).open(prices=table)


def test_counters_add_up_by_name() -> None:
    one, other = StorageCounters(gets=1, wait_s=0.5), StorageCounters(gets=2, heads=3, wait_s=0.25)
    assert (one + other) == StorageCounters(gets=3, heads=3, wait_s=0.75)


def test_a_store_that_is_not_ours_is_counted_by_what_was_asked_of_it() -> None:
    memory.put("memory://counted/key", CONTENT)
    register_store("theirs", lambda options, run_blocking: LatencyStore(MemoryStore(), scheme="theirs"))

    async def main() -> StorageCounters:
        stores = StoreSet({}, asyncio.to_thread)
        (shard,) = await stores.glob("theirs://counted/*")
        assert await read(stores, await stores.info(shard.url)) == CONTENT
        await stores.aclose()
        return stores.counters

    try:
        counters = asyncio.run(main())
    finally:
        register_store("theirs", None)
        memory.clear()
    assert (counters.gets, counters.heads, counters.lists, counters.received_nbytes) == (1, 1, 1, len(CONTENT))
