"""HTTP answers are checked; what breaks is retried or named."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from operator import methodcaller
from typing import Any

import pytest
from http_server import HttpFault, HttpObjects

from aiostream_data import Dataset
from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectChangedError,
    ObjectNotFoundError,
    PlanError,
    ShortReadError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
    WrongAnswerError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import CONTENT, read_range
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.faults import Fault as Wrong
from aiostream_data.testing.faults import Rule

ROOM = memoryview(bytearray(10))


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
        (HttpFault(status=503, headers={"Retry-After": "0"}), 0),
        (HttpFault(status=500), 0),
        (HttpFault(status=429), 0),
        (HttpFault(cut_after=0), 0),
        (HttpFault(cut_after=1), 1),
        (HttpFault(cut_after=4000), 4000),
    ],
)
def test_a_request_that_failed_once_goes_on_behind_what_arrived(
    http_objects: HttpObjects, fault: HttpFault, arrived: int
) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(fault)
    assert read(url, retry_attempts=2) == CONTENT[10:5000]
    assert [seen.headers["range"] for seen in http_objects.requests] == ["bytes=10-4999", f"bytes={10 + arrived}-4999"]


def test_a_server_that_never_answers_is_a_timeout(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(HttpFault(hang=True))
    with pytest.raises(StoreTimeoutError, match="/x"):
        read(url, read_timeout=0.1)


def test_silence_once_is_only_a_delay(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(HttpFault(hang=True))
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
    http_objects.faults.append(HttpFault(status=status))
    with pytest.raises(kind, match=f"HTTP {status}") as caught:
        read(f"{http_objects.endpoint_url}/x?token=hunter2")
    assert type(caught.value) is kind
    assert "hunter2" not in str(caught.value)


def test_a_server_without_ranges_is_read_by_skipping(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(HttpFault(ignore_range=True))
    assert read(url) == CONTENT[10:5000]


@pytest.mark.parametrize("told", ["bytes 11-5000/65792", "bytes 10-4998/65792", "bytes 0-9/*", "nonsense", ""])
def test_a_wrong_content_range_is_refused(http_objects: HttpObjects, told: str) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.append(HttpFault(headers={"Content-Range": told}))
    with pytest.raises(StorageError, match=r"instead of the requested|Content-Range"):
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
        http_objects.faults.append(HttpFault(headers={"ETag": '"other"'}))
        with pytest.raises(ObjectChangedError, match="other"):
            await read_range(stores, shard, 0, 10)

    use(case)


@pytest.mark.parametrize("status", [403, 405, 501])
def test_the_size_is_learnt_without_head_where_that_is_refused(http_objects: HttpObjects, status: int) -> None:
    for name, data in (("/x", CONTENT), ("/empty", b"")):
        url = http_objects.put(name, data)
        http_objects.faults.append(HttpFault(status=status))
        assert use(methodcaller("info", url)).nbytes == len(data)


def test_a_head_that_says_nothing_is_there_is_not_believed(http_objects: HttpObjects) -> None:
    for name, data in (("/x", CONTENT), ("/empty", b"")):
        url = http_objects.put(name, data)
        http_objects.requests.clear()
        http_objects.faults.append(HttpFault(status=200, headers={"Content-Length": "0"}))
        assert use(methodcaller("info", url)).nbytes == len(data)
        assert [seen.method for seen in http_objects.requests] == ["HEAD", "GET"]


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_an_object_of_unknown_size_is_not_taken_for_an_empty_one(reader: str) -> None:
    with fault_server("http") as server:
        url = server.put("x.txt", b"one\ntwo\n")
        server.set_rules(Rule(Wrong(ignore_range=True, chunked=True)))
        with pytest.raises(StorageError, match="did not report the object's size"):
            use(methodcaller("info", url), reader=reader)
        dataset = Dataset.from_text(url, storage_options={"reader": reader})
        with pytest.raises(StorageError, match="did not report the object's size"), dataset.open() as loader:
            list(loader)


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("told", ["nonsense", "bytes */7", "bytes 0-0/0"])
def test_a_damaged_answer_about_an_empty_object_is_retried(reader: str, told: str) -> None:
    damaged = Wrong(content_range=told)
    with fault_server("http") as server:
        url = server.put("b/0.txt", b"")
        server.set_rules(Rule(damaged, kind="get", times=1))
        assert use(methodcaller("info", url), reader=reader, retry_attempts=2).nbytes == 0
        server.set_rules(Rule(damaged, kind="get", times=1))
        assert list(Dataset.from_text(url, storage_options={**server.storage_options, "reader": reader})) == []
        server.set_rules(Rule(damaged, kind="get"))
        with pytest.raises(WrongAnswerError, match=rf"0\.txt: .*HTTP 416 and Content-Range '{re.escape(told)}'; use a"):
            use(methodcaller("info", url), reader=reader, retry_attempts=2)


def test_a_damaged_range_in_place_of_a_size_is_retried(http_objects: HttpObjects) -> None:
    url = http_objects.put("/x", CONTENT)
    damaged = HttpFault(headers={"Content-Range": "nonsense"})
    http_objects.faults += [HttpFault(status=405), HttpFault(status=405), damaged]
    assert use(methodcaller("info", url), retry_attempts=2).nbytes == len(CONTENT)
    assert not http_objects.faults


@pytest.mark.parametrize("status", [404, 401, 503])
def test_a_look_up_that_is_refused_is_not_made_again_by_the_library(http_objects: HttpObjects, status: int) -> None:
    http_objects.faults.append(HttpFault(status=status))
    with pytest.raises(StorageError, match=f"HTTP {status}"):
        use(methodcaller("info", http_objects.put("/x", CONTENT)))
    assert len(http_objects.requests) == 1


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("ignore_range", [False, True])
def test_an_object_that_is_larger_than_was_said_is_not_read_in_part(
    http_objects: HttpObjects, reader: str, ignore_range: bool
) -> None:
    url = http_objects.put("/x", CONTENT)
    http_objects.faults.extend([HttpFault(ignore_range=ignore_range)] * 2)
    with pytest.raises(WrongAnswerError, match=f"size changed from 5000 to {len(CONTENT)} bytes"):
        use(lambda stores: read_range(stores, ShardRef(url, 5000), 0, 5000), reader=reader)


def test_a_body_of_unknown_length_may_not_go_on_behind_the_object() -> None:
    with fault_server("http") as server:
        url = server.put("x", CONTENT)
        server.set_rules(Rule(Wrong(ignore_range=True, chunked=True), kind="get"))
        assert read(url, 10, len(CONTENT)) == CONTENT[10:]
        with pytest.raises(WrongAnswerError, match="more than the requested 4990 bytes"):
            use(lambda stores: read_range(stores, ShardRef(url, 5000), 10, 5000))


@pytest.mark.parametrize("url", ["http://[::1/x", "http://host:port/x", "http://host:99999/x", "http://", "http:///x"])
@pytest.mark.parametrize("what", ["info", "read"])
def test_a_url_that_is_none_is_told_as_one(url: str, what: str) -> None:
    with pytest.raises(StorageError):
        use(lambda stores: stores.info(url) if what == "info" else read_range(stores, ShardRef(url), 0, 5))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"headers": {"X-Number": 5}}, "headers must be strings, got int"),
        ({"headers": {5: "x"}}, "headers must be strings"),
        ({"auth": "me:hunter2"}, "auth must be a pair"),
        ({"auth": ("hunter2",)}, "auth must be a pair"),
    ],
)
def test_headers_and_logins_that_are_none_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(PlanError, match=told) as caught:
        read("http://127.0.0.1:9/x", **options)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("what", ["info", "read"])
def test_a_signature_that_has_expired_is_told_with_the_name_of_the_request(
    http_objects: HttpObjects, reader: str, what: str
) -> None:
    said = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
    refusal = HttpFault(status=403, body=said, headers={"x-amz-request-id": "R4"})
    http_objects.faults.extend([refusal] * 3)
    url = f"{http_objects.endpoint_url}/x?X-Amz-Signature=hunter2"
    ask = methodcaller("info", url) if what == "info" else methodcaller("read_into", ShardRef(url), 0, ROOM)
    with pytest.raises(CredentialsError, match=r"have expired \(HTTP 403, request id R4\)") as caught:
        use(ask, reader=reader)
    assert "hunter2" not in str(caught.value)


def test_headers_and_password_are_sent_and_never_told(http_objects: HttpObjects) -> None:
    http_objects.faults.append(HttpFault(status=401))
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
