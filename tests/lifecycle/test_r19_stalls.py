"""R19: a server that falls silent costs its time-out, and not the run."""

from __future__ import annotations

import time

import pytest
from leaks import leaves_nothing
from reading import CONTENT, NBYTES, read, reads, with_stores

from aiostream_data.errors import StoreTimeoutError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import At, Fault, Rule
from aiostream_data.testing.object_api.dialect import DialectName

TIMEOUT_S = 0.5


def _content(server: FaultServer, url: str, **options: object) -> bytes:
    async def case(stores: StoreSet) -> bytes:
        return await read(stores, ShardRef(url))

    return with_stores(server, case, **{"first_byte_timeout": TIMEOUT_S, "read_timeout": TIMEOUT_S, **options})


@pytest.mark.parametrize("at", ["start", "head", "first", "middle", "last"])
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r19_a_stall_costs_no_more_than_its_time_out(dialect: DialectName, at: At) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(stall_at=at), kind="get", times=1))
        assert _content(server, url) == CONTENT
        first, second = [seen for seen in server.log() if seen.kind == "get"]
        assert second.time_s - first.time_s < 1.2 * TIMEOUT_S + 0.2  # 0.2: the pause before another attempt, at most
        assert reads(server)[1][0] == {"first": 1, "middle": NBYTES // 2, "last": NBYTES - 1}.get(str(at), 0)


def test_r19_a_store_that_stays_silent_is_a_time_out_error() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(stall_at="middle"), kind="get"))
        began = time.monotonic()
        with pytest.raises(StoreTimeoutError, match="_timeout"):
            _content(server, url, retry_attempts=2)
        assert time.monotonic() - began < 2 * 1.2 * TIMEOUT_S + 1.0


@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r19_silence_on_a_connection_that_was_good_is_waited_for_once(dialect: DialectName) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)

        async def case(stores: StoreSet) -> tuple[float, int]:
            await read(stores, ShardRef(url, NBYTES), 0, 10)
            server.set_rules(Rule(Fault(stall_at="start"), kind="get"))
            began = time.monotonic()
            with pytest.raises(StoreTimeoutError):
                await read(stores, ShardRef(url, NBYTES), 10, 20)
            return time.monotonic() - began, stores.counters.timeouts

        options = {"first_byte_timeout": TIMEOUT_S, "read_timeout": TIMEOUT_S, "retry_attempts": 1}
        took_s, timeouts = with_stores(server, case, **options)
    assert took_s < 1.2 * TIMEOUT_S + 0.2
    assert timeouts == 1


@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r19_libraries_are_held_to_the_time_for_all_of_an_answer_too(dialect: DialectName) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(slow_head_s=0.05), kind="get"))
        began = time.monotonic()
        with pytest.raises(StoreTimeoutError, match=r"within 0\.5 s"):
            _content(server, url, total_timeout=0.5, retry_attempts=1, reader="library")
        assert time.monotonic() - began < 5.0


def test_r19_an_answer_that_trickles_is_ended_by_the_time_for_all_of_it() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(slow_head_s=0.05), kind="get"))
        with pytest.raises(StoreTimeoutError, match="total_timeout"):
            _content(server, url, total_timeout=0.4, retry_attempts=1)
