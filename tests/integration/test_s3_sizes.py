"""The size of an S3 object of which only the name is known takes one plain HEAD request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data.errors import AiostreamError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import s3
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with leaves_nothing(), fault_server("s3") as running:
        yield running


def info(url: str, options: dict[str, Any]) -> ShardRef:
    async def ask() -> ShardRef:
        stores = StoreSet({**options, "hedge": False}, asyncio.to_thread)
        try:
            return await stores.info(url)
        finally:
            await stores.aclose()

    return asyncio.run(ask())


def listed(pattern: str, options: dict[str, Any]) -> ShardRef:
    async def find() -> ShardRef:
        stores = StoreSet(options, asyncio.to_thread)
        try:
            (found,) = await stores.glob(pattern)
            return found
        finally:
            await stores.aclose()

    return asyncio.run(find())


def of_library(url: str, options: dict[str, Any]) -> ShardRef | tuple[type, str]:
    try:
        return info(url, {**options, "reader": "library"})
    except AiostreamError as error:
        return type(error), shown(error)


def shown(error: BaseException) -> str:
    """Return the text of an error without what differs in each run."""
    return re.sub(r",? ?request id \w+|after [0-9.]+ s", "", str(error))


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("key", ["plain", "with space/and+plus", "ümlaut~%41", "empty"])
def test_the_library_sends_no_request(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch, key: str, verify: bool
) -> None:
    url = server.put(f"bucket/{key}", b"" if key == "empty" else b"12345")
    options = {**server.storage_options, "verify": verify}
    expected = of_library(url, options)

    def refuse(*args: object) -> None:
        raise AssertionError("the library was asked")

    monkeypatch.setattr(s3.S3Store, "_info_by_library", refuse)
    server.clear_log()
    found = info(url, options)
    assert found == expected == listed(f"{url[:-1]}?", server.storage_options)
    assert [seen.method for seen in server.log() if seen.kind == "head"] == ["HEAD"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=404, code="NoSuchKey"),
        Fault(status=403, code="AccessDenied"),
        Fault(status=400, code="ExpiredToken"),
        Fault(status=500),
        Fault(status=503, code="SlowDown"),
        Fault(without=("Content-Length",), close_after=True),
        Fault(without=("ETag",)),
    ],
    ids=lambda fault: str(fault.status or fault.without),
)
def test_a_refused_request_has_the_outcome_of_the_library(server: FaultServer, fault: Fault) -> None:
    url = server.put("bucket/refused", b"12345")
    options = {**server.storage_options, "retry_attempts": 2}
    server.set_rules(Rule(fault, key="bucket/refused"))
    try:
        expected = of_library(url, options)
        if isinstance(expected, ShardRef):
            assert info(url, options) == expected
        else:
            with pytest.raises(expected[0]) as raised:
                info(url, options)
            assert shown(raised.value) == expected[1]
    finally:
        server.set_rules()


def test_a_passing_fault_is_retried(server: FaultServer) -> None:
    url = server.put("bucket/busy", b"12345")
    server.set_rules(Rule(Fault(status=503, code="SlowDown", retry_after="0"), key="bucket/busy", times=1))
    assert info(url, server.storage_options).nbytes == 5
    server.set_rules()


def test_an_object_of_an_unknown_bucket_is_explained(server: FaultServer) -> None:
    url = server.put("bucket/known", b"12345").replace("bucket", "nobucket")
    expected = of_library(url, server.storage_options)
    assert isinstance(expected, tuple)
    with pytest.raises(expected[0]) as raised:
        info(url, server.storage_options)
    assert shown(raised.value) == expected[1]
