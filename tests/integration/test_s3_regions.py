"""A bucket in another region than the options say is found by the store's own word, once, and read on the same path."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.errors import StorageError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.s3 import S3Store
from aiostream_data.storage.s3_plain import host_in, is_plain_bucket, region_of
from aiostream_data.storage.wire.client import Refused
from aiostream_data.testing.conformance import CONTENT, read_range
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule

THERE = "eu-central-1"


def regions(server: FaultServer) -> list[str]:
    """Return what the reads were signed for, in order."""
    signed = [seen.headers["authorization"] for seen in server.log() if seen.kind == "get"]
    return [text.split("/")[2] for text in signed]


def read(server: FaultServer, url: str, reader: str, times: int = 3) -> S3Store:
    async def main() -> S3Store:
        store = S3Store({**server.storage_options, "reader": reader}, asyncio.to_thread)
        try:
            for start in range(times):
                assert await read_range(store, ShardRef(url), start, start + 50) == CONTENT[start : start + 50]
        finally:
            await store.aclose()
        return store

    return asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("status", [400, 301])
def test_the_region_is_learnt_once_and_reading_goes_on_by_gets_of_our_own(status: int) -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(region=THERE, status=status)))
        store = read(server, url, "plain")
        assert regions(server) == ["us-east-1", THERE, THERE, THERE]
        assert (store._route.plain_reads, store._route.library_reads) == (3, 0)


@pytest.mark.parametrize("status", [400, 301])
def test_the_library_finds_the_region_too(status: int) -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(region=THERE, status=status)))
        store = read(server, url, "library")
        assert regions(server)[-3:] == [THERE] * 3
        assert store._route.library_reads == 3


def test_a_pipeline_over_a_bucket_elsewhere_lists_and_reads() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        for number in range(3):
            server.put(f"bucket/part-{number}.txt", b"a\nb\n")
        server.set_rules(Rule(Fault(region=THERE)))
        dataset = Dataset.from_text("s3://bucket/part-*.txt", storage_options=server.storage_options)
        with dataset.open() as loader:
            assert len(list(loader)) == 6


def test_many_readers_that_meet_it_at_once_all_go_on() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        server.set_rules(Rule(Fault(region=THERE)))

        async def main() -> list[bytes]:
            store = S3Store({**server.storage_options, "reader": "plain"}, asyncio.to_thread)
            try:
                return await asyncio.gather(*(read_range(store, ShardRef(url), n, n + 10) for n in range(16)))
            finally:
                await store.aclose()

        assert asyncio.run(asyncio.wait_for(main(), 30)) == [CONTENT[n : n + 10] for n in range(16)]


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_a_store_that_sends_from_region_to_region_is_an_error_that_names_it(reader: str) -> None:
    with leaves_nothing(), fault_server("s3") as server:
        url = server.put("bucket/key", CONTENT)
        there, away = Fault(region=THERE), Fault(region="ap-south-1")
        server.set_rules(Rule(there, kind="get", every=2), Rule(away))
        with pytest.raises(StorageError, match=r"the bucket is in .*request id") as caught:
            read(server, url, reader)
        assert str(caught.value).startswith(f"{url}: ")


@pytest.mark.parametrize(
    ("host", "region", "there"),
    [
        ("bucket.s3.amazonaws.com", "us-east-1", "bucket.s3.amazonaws.com"),
        ("bucket.s3.amazonaws.com", "eu-west-1", "bucket.s3.eu-west-1.amazonaws.com"),
        ("a.b.s3.eu-west-1.amazonaws.com", "us-east-1", "a.b.s3.us-east-1.amazonaws.com"),
        ("s3.eu-west-1.amazonaws.com", "us-west-2", "s3.us-west-2.amazonaws.com"),
        ("s3-eu-west-1.amazonaws.com", "us-west-2", "s3.us-west-2.amazonaws.com"),
        ("b.s3.cn-north-1.amazonaws.com.cn", "cn-northwest-1", "b.s3.cn-northwest-1.amazonaws.com.cn"),
        ("bucket.s3-accelerate.amazonaws.com", "eu-west-1", "bucket.s3-accelerate.amazonaws.com"),
        ("127.0.0.1", "eu-west-1", "127.0.0.1"),
        ("minio.example", "eu-west-1", "minio.example"),
        ("s3.amazonaws.com.evil.example", "eu-west-1", "s3.amazonaws.com.evil.example"),
    ],
)
def test_only_hosts_of_amazon_move_with_the_region(host: str, region: str, there: str) -> None:
    assert host_in(host, region) == there


def test_buckets_that_want_more_than_a_signature_are_left_to_the_library() -> None:
    assert is_plain_bucket("my.bucket-1")
    for name in ("data--use1-az4--x-s3", "data--use1-az4--xa-s3", "arn:aws:s3:eu-west-1:123456789012:accesspoint:data"):
        assert not is_plain_bucket(name)


@pytest.mark.parametrize("told", ["evil.example/", "a b", "EU", "x" * 60, "", "eu-west-1.evil", "e"])
def test_what_is_no_region_is_not_believed(told: str) -> None:
    answers: list[Any] = [Refused(400, {"x-amz-bucket-region": told}, b"")]
    answers.append(Refused(400, {}, f"<Region>{told}</Region>".encode()))
    assert [region_of(answer) for answer in answers] == ["", ""]
