"""HTTP answers are checked; what breaks is retried or named."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from operator import methodcaller
from typing import Any

import pytest

from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from aiostream_data.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import CONTENT, read_range
from aiostream_data.testing.http_server import Fault, HttpObjects


def use(case: Callable[[StoreSet], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        stores = StoreSet({"retry_attempts": 1, **options}, asyncio.to_thread)
        try:
            return await case(stores)
        finally:
            await stores.aclose()

    return asyncio.run(main())


def read(url: str, start: int = 10, stop: int = 5000, **options: Any) -> bytes:
    result: bytes = use(lambda stores: read_range(stores, ShardRef(url), start, stop), **options)
    return result


@pytest.mark.parametrize(
    ("fault", "arrived"),
    [
        (Fault(status=503, headers={"Retry-After": "0"}), 0),
        (Fault(status=500), 0),
        (Fault(status=429), 0),
        (Fault(cut_after=0), 0),
        (Fault(cut_after=1), 1),
        (Fault(cut_after=4000), 4000),
    ],
)
def test_a_request_that_failed_once_goes_on_behind_what_arrived(
    http_objects: HttpObjects, fault: Fault, arrived: int
) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(fault)
    assert read(url, retry_attempts=2) == CONTENT[10:5000]
    assert [seen.headers["range"] for seen in http_objects.requests] == ["bytes=10-4999", f"bytes={10 + arrived}-4999"]


def test_a_server_that_never_answers_is_a_timeout(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(Fault(hang=True))
    with pytest.raises(StoreTimeoutError, match="/x"):
        read(url, read_timeout=0.1)


def test_silence_once_is_only_a_delay(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(Fault(hang=True))
    assert read(url, read_timeout=0.1, retry_attempts=2) == CONTENT[10:5000]


def test_a_closed_port_is_unreachable_and_soon_so() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/x"
        with pytest.raises(StoreUnreachableError, match="refused") as caught:
            read(url, retry_attempts=1000, retry_connect_total_s=0.2)
    assert isinstance(caught.value, ConnectionError)
    assert "attempts" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, CredentialsError),
        (403, AccessDeniedError),
        (404, ObjectNotFoundError),
        (410, ObjectNotFoundError),
        (412, ObjectChangedError),
        (416, ShortReadError),
        (429, StoreBusyError),
        (503, StoreBusyError),
        (418, StorageError),
    ],
)
def test_each_status_has_its_error(http_objects: HttpObjects, status: int, kind: type[StorageError]) -> None:
    http_objects.faults.append(Fault(status=status))
    with pytest.raises(kind, match=f"HTTP {status}") as caught:
        read(f"{http_objects.endpoint_url}/x?token=hunter2")
    assert type(caught.value) is kind
    assert "hunter2" not in str(caught.value)


def test_a_server_without_ranges_is_read_by_skipping(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(Fault(ignore_range=True))
    assert read(url) == CONTENT[10:5000]


@pytest.mark.parametrize("told", ["bytes 11-5000/65792", "bytes 10-4998/65792", "bytes 0-9/*", "nonsense", ""])
def test_a_wrong_content_range_is_refused(http_objects: HttpObjects, told: str) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(Fault(headers={"Content-Range": told}))
    with pytest.raises(StorageError, match="came"):
        read(url)


def test_an_object_replaced_between_two_reads_is_noticed(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)

    async def case(stores: StoreSet) -> None:
        shard = await stores.info(url)
        http_objects.put("/x", CONTENT[::-1])
        with pytest.raises(ObjectChangedError):
            await read_range(stores, shard, 0, 10)

    use(case)


def test_another_etag_in_the_answer_is_noticed_too(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)

    async def case(stores: StoreSet) -> None:
        shard = await stores.info(url)
        http_objects.faults.append(Fault(headers={"ETag": '"other"'}))
        with pytest.raises(ObjectChangedError, match="other"):
            await read_range(stores, shard, 0, 10)

    use(case)


@pytest.mark.parametrize("status", [403, 405, 501])
def test_the_size_is_learnt_without_head_where_that_is_refused(http_objects: HttpObjects, status: int) -> None:
    for name, data in (("/x", CONTENT), ("/empty", b"")):
        url = http_objects.put(name, data)
        http_objects.faults.append(Fault(status=status))
        assert use(methodcaller("info", url)).nbytes == len(data)


def test_headers_and_password_are_sent_and_never_told(http_objects: HttpObjects) -> None:
    http_objects.faults.append(Fault(status=401))
    with pytest.raises(CredentialsError) as caught:
        read(f"{http_objects.endpoint_url}/x", headers={"X-Token": "hunter2"}, auth=("me", "hunter3"))
    (seen,) = http_objects.requests
    assert seen.headers["x-token"] == "hunter2"
    assert seen.headers["authorization"].startswith("Basic ")
    assert "hunter" not in str(caught.value)


def test_a_signed_url_is_sent_unchanged(http_objects: HttpObjects) -> None:
    http_objects.put("/a b", CONTENT)
    target = "/a%20b?X-Sig=a%2Fb%3D&n=%7e"
    assert read(http_objects.endpoint_url + target, 0, 10) == CONTENT[:10]
    assert http_objects.requests[0].path == target


def test_reading_nothing_asks_nothing(http_objects: HttpObjects) -> None:
    assert read(http_objects.put("/x", CONTENT), 5, 5) == b""
    assert not http_objects.requests


def test_connections_are_used_again(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)

    async def case(stores: StoreSet) -> int:
        for start in range(20):
            await read_range(stores, ShardRef(url), start, start + 1000)
        return len(http_objects.ports)

    assert use(case) == 1
