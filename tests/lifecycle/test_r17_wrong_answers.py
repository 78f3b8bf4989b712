"""R17: an answer that contradicts itself, or what was asked for, is never taken for data."""

from __future__ import annotations

import pytest
from leaks import leaves_nothing
from reading import CONTENT, read, reads, with_stores

from aiostream_data.errors import StorageError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_catalogue import BREAKS, LIES, ODDITIES, REFUSALS
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.object_api.dialect import DialectName

BEHIND = "more than was asked for"
"""What comes behind a whole body is no part of it: the body is taken, and the connection is not used again."""

WRONG = {name: fault for name, fault in {**LIES, **BREAKS}.items() if name not in (BEHIND, "closed without a word")}
WRONG["error in a 200"] = REFUSALS["error in a 200"]
START, STOP = 1_000, 50_000


def _content(server: FaultServer, url: str, **options: object) -> bytes:
    async def case(stores: StoreSet) -> bytes:
        return await read(stores, await stores.info(url), START, STOP)

    return with_stores(server, case, **options)


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r17_a_wrong_answer_is_asked_for_again(dialect: DialectName, reader: str) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        for name, fault in WRONG.items():
            server.set_rules(Rule(fault, kind="get", times=1))
            server.clear_log()
            assert _content(server, url, reader=reader) == CONTENT[START:STOP], name
            assert len(reads(server)) >= 2, name


@pytest.mark.parametrize("name", [*(name for name in LIES if name != BEHIND), "error in a 200"])
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r17_what_stays_wrong_is_an_error_that_says_so(dialect: DialectName, name: str) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(WRONG[name], kind="get"))
        with pytest.raises(StorageError) as caught:
            _content(server, url, reader="plain", retry_attempts=3)
        assert url in str(caught.value)
        assert "gave up after 3 attempts" in caught.value.__notes__[0]


@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r17_heads_that_only_aiohttp_forgives_are_left_to_it_after_a_few(dialect: DialectName) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(headers=(("X-Long", "one\r\n two"),))))

        async def case(stores: StoreSet) -> int:
            shard = await stores.info(url)
            for _ in range(5):
                assert await read(stores, shard, START, STOP) == CONTENT[START:STOP]
            return stores.counters.retries

        assert with_stores(server, case) == 3


@pytest.mark.parametrize("name", ODDITIES)
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r17_what_is_only_unusual_is_read(dialect: DialectName, name: str) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(ODDITIES[name], kind="get"))
        assert _content(server, url) == CONTENT[START:STOP]


def test_r17_a_redirect_is_followed() -> None:
    with leaves_nothing(), fault_server("http") as server:
        there = server.put("there", CONTENT)
        here = server.put("here", b"not this")
        server.set_rules(Rule(Fault(redirect=there), kind="get", key="here"))

        async def case(stores: StoreSet) -> bytes:
            return await read(stores, ShardRef(here, len(CONTENT)), START, STOP)

        assert with_stores(server, case) == CONTENT[START:STOP]


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r17_what_comes_behind_a_body_is_left_out_and_its_connection_too(dialect: DialectName, reader: str) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(LIES[BEHIND], kind="get"))

        async def case(stores: StoreSet) -> bytes:
            shard = await stores.info(url)
            return b"".join([await read(stores, shard, start, start + 1_000) for start in range(0, 20_000, 1_000)])

        assert with_stores(server, case, reader=reader) == CONTENT[:20_000]
