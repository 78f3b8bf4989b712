"""Bytes that were changed in an answer of perfect form: the store's checksum of the whole object finds them."""

from __future__ import annotations

from typing import Any

import pytest
from leaks import leaves_nothing
from reading import CONTENT, read, with_stores

from aiostream_data import Dataset
from aiostream_data._engine.sources.shard_ranges import WRONG_ATTEMPTS
from aiostream_data.errors import ChecksumError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.checksums import check_whole
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.object_api.dialect import DialectName

SMALL = CONTENT[:50_000]
LINES = b"".join(b"%07d\n" % number for number in range(600_000))  # 4.8 MB, of several ranges
WRONG_BYTE = Fault(corrupt_at="middle")


def whole(server: FaultServer, url: str, **options: Any) -> tuple[bytes, StorageCounters]:
    async def case(stores: StoreSet) -> tuple[bytes, StorageCounters]:
        return await read(stores, await stores.info(url)), stores.counters

    return with_stores(server, case, **options)


@pytest.mark.parametrize("content", [SMALL, CONTENT], ids=["a small object", "a large one"])
@pytest.mark.parametrize("dialect", ["s3", "gcs"])
def test_a_wrong_byte_is_asked_for_again(dialect: DialectName, content: bytes) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", content)
        server.set_rules(Rule(WRONG_BYTE, kind="get", times=2))
        found, counters = whole(server, url)
        assert found == content
        assert (counters.mismatches, counters.verified, counters.retries, counters.gets) == (2, 1, 2, 3)


@pytest.mark.parametrize("dialect", ["s3", "gcs"])
def test_bytes_that_stay_wrong_are_an_error_with_what_was_expected_and_found(dialect: DialectName) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", SMALL)
        server.set_rules(Rule(WRONG_BYTE, kind="get"))
        with pytest.raises(ChecksumError) as caught:
            whole(server, url, retry_attempts=2)
        error = caught.value
        assert all(part in str(error) for part in (url, error.expected, error.found, error.algorithm))
        assert error.expected != error.found
        assert "gave up after 2 attempts" in error.__notes__[0]


@pytest.mark.parametrize("dialect", ["s3", "gcs"])
def test_without_verify_nothing_is_asked_and_every_byte_is_believed(dialect: DialectName) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", SMALL)
        server.set_rules(Rule(WRONG_BYTE, kind="get"))
        found, counters = whole(server, url, verify=False)
        assert sum(one != other for one, other in zip(found, SMALL, strict=True)) == 1
        assert (counters.verified, counters.mismatches) == (0, 0)
        assert not any("x-amz-checksum-mode" in seen.headers for seen in server.log())


def test_s3_is_asked_for_the_checksum_of_whole_objects_alone_and_the_question_is_signed() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", SMALL)
        server.set_accounts(Account(key="AKID", secret="SECRET"))

        async def case(stores: StoreSet) -> None:
            shard = await stores.info(url)
            assert await read(stores, shard) == SMALL
            assert await read(stores, shard, 0, 10) == SMALL[:10]

        with_stores(server, case, key="AKID", secret="SECRET")
        all_of_it, a_part = (seen.headers for seen in server.log() if seen.kind == "get")
        assert all_of_it["x-amz-checksum-mode"] == "ENABLED"
        assert "x-amz-checksum-mode" in all_of_it["authorization"]
        assert "range" not in all_of_it
        assert "x-amz-checksum-mode" not in a_part


@pytest.mark.parametrize(
    "told", [(("x-amz-checksum-crc32", "AAAAAA=="),), (("x-amz-checksum-sha256", "A" * 43 + "="),)]
)
def test_what_comes_with_a_range_is_not_held_against_the_range(told: tuple[tuple[str, str], ...]) -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", SMALL)
        server.set_rules(Rule(Fault(headers=told), kind="get"))

        async def case(stores: StoreSet) -> bytes:
            shard = ShardRef(url, len(SMALL))
            return await read(stores, shard, 0, 1_000) + await read(stores, shard, 1_000)

        assert with_stores(server, case) == SMALL


def test_checksums_of_checksums_are_not_held_against_bytes() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", SMALL)
        composite = (("x-amz-checksum-crc32", "AAAAAA==-2"), ("x-amz-checksum-type", "COMPOSITE"))
        without = ("x-amz-checksum-crc32", "x-amz-checksum-type")
        server.set_rules(Rule(Fault(headers=composite, without=without)))
        found, counters = whole(server, url)
        assert found == SMALL
        assert (counters.verified, counters.mismatches) == (0, 0)


@pytest.mark.parametrize("dialect", ["s3", "gcs"])
def test_a_body_in_two_pieces_is_checked_as_one_and_read_anew_where_it_is_wrong(dialect: DialectName) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/key", SMALL)
        server.set_rules(Rule(Fault(reset_at="middle", corrupt_at="first"), kind="get", times=1))
        found, counters = whole(server, url)
        assert found == SMALL
        assert (counters.gets, counters.mismatches, counters.verified) == (3, 1, 1)


def test_large_bodies_are_summed_beside_the_event_loop() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        functions = []

        async def case(stores: StoreSet) -> bytes:
            run = stores._run_blocking

            def noted(function: Any, *args: Any) -> Any:
                functions.append(function)
                return run(function, *args)

            stores._run_blocking = noted
            return await read(stores, await stores.info(url))

        assert with_stores(server, case) == CONTENT
        assert check_whole in functions


def lines_of(server: FaultServer, url: str, **options: Any) -> tuple[int, Any]:
    dataset = Dataset.from_text(url, encoding=None, storage_options={**server.storage_options, **options})
    with dataset.open() as loader:
        return sum(1 for _ in loader), loader.stats()


@pytest.mark.parametrize("dialect", ["s3", "gcs"])
def test_an_object_of_several_ranges_is_checked_when_the_last_one_is_there(dialect: DialectName) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/lines.txt", LINES)
        count, stats = lines_of(server, url)
        assert count == 600_000
        assert stats.storage["gets"] > 1
        assert (stats.storage["verified"], stats.storage["mismatches"]) == (1, 0)


@pytest.mark.parametrize("dialect", ["s3", "gcs"])
def test_a_wrong_byte_in_any_of_several_ranges_ends_the_run(dialect: DialectName) -> None:
    with leaves_nothing(), fault_server(dialect) as server:
        url = server.put("bucket/lines.txt", LINES)
        server.set_rules(Rule(WRONG_BYTE, kind="get", times=1))
        dataset = Dataset.from_text(url, encoding=None, storage_options=server.storage_options)
        with dataset.open() as loader, pytest.raises(ChecksumError, match=r"lines\.txt"):
            for _ in loader:
                pass
        assert loader.stats().storage["mismatches"] == 1


@pytest.mark.parametrize("times", [1, None])
def test_an_object_in_parallel_parts_is_read_anew_where_it_is_wrong(times: int | None) -> None:
    content = CONTENT * 10
    with leaves_nothing(), fault_server("gcs") as server:
        url = server.put("bucket/large", content)
        server.set_rules(Rule(WRONG_BYTE, kind="get", times=times))
        with Dataset.from_files(url, storage_options=server.storage_options).open() as loader:
            if times is None:
                with pytest.raises(ChecksumError, match="large"):
                    next(iter(loader))
            else:
                assert next(iter(loader))["data"] == content
        storage = loader.stats().storage
        assert storage["gets"] > storage["mismatches"] > 0
        assert (storage["mismatches"], storage["verified"]) == ((1, 1) if times else (WRONG_ATTEMPTS, 0))


def test_plain_http_tells_nothing_and_nothing_is_checked() -> None:
    with leaves_nothing(), fault_server("http") as server:
        url = server.put("key", SMALL)
        found, counters = whole(server, url, verify=True)
        assert found == SMALL
        assert counters.verified == 0
