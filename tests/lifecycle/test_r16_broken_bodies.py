"""R16: a connection that ends anywhere in an answer costs what was still to come, and no byte of what had come."""

from __future__ import annotations

import pytest
from leaks import leaves_nothing
from reading import CONTENT, NBYTES, read, reads, with_stores

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import At, Fault, Rule
from aiostream_data.testing.object_api.dialect import DialectName

PLACES: tuple[At, ...] = ("start", "head", "first", "middle", "last", 700_000)
HAD_COME = {"start": 0, "head": 0, "first": 1, "middle": NBYTES // 2, "last": NBYTES - 1, 700_000: 700_000}


def _content(server: FaultServer, url: str, **options: object) -> bytes:
    async def case(stores: StoreSet) -> bytes:
        return await read(stores, ShardRef(url))

    return with_stores(server, case, **options)


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r16_what_had_come_before_the_end_is_not_asked_for_again(dialect: DialectName, at: At) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(truncate_at=at), kind="get", times=1))
        assert _content(server, url) == CONTENT
        assert reads(server) == [(0, NBYTES), (HAD_COME[at], NBYTES)]


@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r16_a_library_goes_on_behind_what_had_come_as_well(dialect: DialectName) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(truncate_at="middle"), kind="get", times=1))
        assert _content(server, url, reader="library") == CONTENT
        (_, (start, stop)) = reads(server)
        assert 0 < start <= NBYTES // 2
        assert stop == NBYTES


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_r16_a_reset_costs_no_more_than_what_the_system_had_not_handed_on(dialect: DialectName, at: At) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(reset_at=at), kind="get", times=1))
        assert _content(server, url) == CONTENT
        (_, (start, stop)) = reads(server)
        assert start <= HAD_COME[at]  # a reset throws away what lies in the system's buffers
        assert stop == NBYTES


def test_r16_a_body_that_breaks_off_again_and_again_arrives_in_pieces() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(truncate_at=200_000), kind="get"))  # no answer is ever complete but the last
        assert _content(server, url) == CONTENT
        assert [start for start, _ in reads(server)] == list(range(0, NBYTES, 200_000))


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_r16_an_object_that_changed_meanwhile_is_never_put_together_from_two(reader: str) -> None:
    from aiostream_data.errors import ObjectChangedError

    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(
            Rule(Fault(truncate_at="middle"), kind="get", times=1), Rule(Fault(change="before"), kind="get", times=1)
        )
        with pytest.raises(ObjectChangedError):
            _content(server, url, reader=reader)
