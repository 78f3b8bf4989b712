"""S3: every failure is named for who must act, and secrets stay out of messages."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from http_server import HttpFault, HttpObjects

from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    NoMatchError,
    ObjectChangedError,
    ObjectNotFoundError,
    PlanError,
    ShortReadError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import key_search
from aiostream_data.storage.s3_errors import translate_s3_answer, translate_s3_error
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import CONTENT, read_range
from aiostream_data.testing.servers import ObjectServer

URL = "s3://bucket/x"
SECRET = "hunter2hunter2"


def use(case: Callable[[StoreSet], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        stores = StoreSet({"retry_attempts": 1, **options}, asyncio.to_thread)
        try:
            return await case(stores)
        finally:
            await stores.aclose()

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def _no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide whatever credentials this machine has."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


@pytest.fixture
def fake(http_objects: HttpObjects) -> HttpObjects:
    """A server that holds one object, and does what its faults say."""
    http_objects.put("/bucket/x", CONTENT)
    return http_objects


class RefusedError(Exception):
    """What botocore makes of an error answer."""

    def __init__(self, status: int, code: str) -> None:
        self.response: dict[str, Any] = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status, "RequestId": "REQ-1"},
        }


def read(server: HttpObjects, start: int = 10, stop: int = 5000, **options: Any) -> bytes:
    signed = {"endpoint_url": server.endpoint_url, "key": "AKIAEXAMPLE", "secret": SECRET, **options}
    result: bytes = use(lambda stores: read_range(stores, ShardRef(URL), start, stop), **signed)
    return result


def refusal(status: int, code: str) -> HttpFault:
    body = f"<Error><Code>{code}</Code><Message>words</Message></Error>"
    return HttpFault(status=status, body=body.encode(), headers={"x-amz-request-id": "REQ-1"})


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (404, "NoSuchKey", ObjectNotFoundError, "no such object"),
        (404, "NoSuchBucket", ObjectNotFoundError, "bucket 'bucket' does not exist"),
        (403, "AccessDenied", AccessDeniedError, "permissions"),
        (403, "SignatureDoesNotMatch", AccessDeniedError, "secret key"),
        (403, "InvalidAccessKeyId", CredentialsError, "access key"),
        (403, "RequestTimeTooSkewed", AccessDeniedError, "clock"),
        (400, "ExpiredToken", CredentialsError, "expired"),
        (412, "PreconditionFailed", ObjectChangedError, "replaced"),
        (416, "InvalidRange", ShortReadError, "ends before"),
        (503, "SlowDown", StoreBusyError, "cannot serve"),
        (500, "InternalError", StoreBusyError, "cannot serve"),
        (409, "Strange", StoreBusyError, "HTTP 409"),
        (400, "Strange", StorageError, "unexpected"),
    ],
)
def test_each_refusal_has_its_error(status: int, code: str, kind: type[StorageError], words: str) -> None:
    error = translate_s3_error(URL, RefusedError(status, code))
    assert type(error) is kind
    assert all(part in str(error) for part in (URL, code, words, "REQ-1", str(status)))


def test_a_refusal_of_the_server_is_translated_without_secrets(fake: HttpObjects) -> None:
    fake.faults.append(refusal(403, "SignatureDoesNotMatch"))
    with pytest.raises(AccessDeniedError, match=r"SignatureDoesNotMatch, HTTP 403, request id REQ-1") as caught:
        read(fake)
    assert URL in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("answer", [{}, {"Error": {}}, {"Error": {}, "ResponseMetadata": None}, {"Error": None}])
def test_a_refusal_that_makes_no_sense_is_still_a_storage_error(answer: dict[str, Any]) -> None:
    error = RefusedError(500, "x")
    error.response = answer
    assert URL in str(translate_s3_error(URL, error))


@pytest.mark.parametrize("fault", [refusal(503, "SlowDown"), HttpFault(cut_after=0), HttpFault(cut_after=3000)])
def test_a_request_that_failed_once_is_repeated(fake: HttpObjects, fault: HttpFault) -> None:
    fake.faults.append(fault)
    assert read(fake, retry_attempts=2) == CONTENT[10:5000]
    assert len(fake.requests) == 2


def test_retries_are_ours_alone(fake: HttpObjects) -> None:
    fake.faults.extend([refusal(503, "SlowDown")] * 9)
    with pytest.raises(StoreBusyError):
        read(fake, retry_attempts=3)
    assert len(fake.requests) == 3


def test_a_range_costs_one_request(fake: HttpObjects) -> None:
    assert read(fake) == CONTENT[10:5000]
    assert [(seen.method, seen.headers["range"]) for seen in fake.requests] == [("GET", "bytes=10-4999")]


def test_connections_are_used_again(fake: HttpObjects) -> None:
    async def case(stores: StoreSet) -> int:
        for start in range(20):
            await read_range(stores, ShardRef(URL), start, start + 1000)
        return len(fake.ports)

    assert use(case, endpoint_url=fake.endpoint_url, anon=True) == 1


def test_an_endpoint_that_never_answers_is_a_timeout(fake: HttpObjects) -> None:
    fake.faults.append(HttpFault(hang=True))
    with pytest.raises(StoreTimeoutError, match="first_byte_timeout"):
        read(fake, read_timeout=0.1)


def test_a_closed_port_is_unreachable_and_soon_so() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(StoreUnreachableError, match="refused"):
            use(
                lambda stores: stores.glob("s3://bucket/*"),
                endpoint_url=endpoint,
                anon=True,
                retry_attempts=1000,
                retry_connect_total_s=0.2,
            )


def test_a_host_that_does_not_exist_is_unreachable() -> None:
    with pytest.raises(StoreUnreachableError, match="resolved"):
        use(lambda stores: stores.info(URL), endpoint_url="http://no-such-host.invalid", anon=True)


def test_missing_credentials_say_what_to_do(fake: HttpObjects) -> None:
    for request in (lambda stores: stores.info(URL), lambda stores: stores.glob("s3://bucket/*")):
        with pytest.raises(CredentialsError, match=r"AWS_ACCESS_KEY_ID.*'anon': True") as caught:
            use(request, endpoint_url=fake.endpoint_url)
        assert isinstance(caught.value, PermissionError)
    assert not fake.requests


def test_an_unknown_profile_is_a_matter_of_credentials(fake: HttpObjects) -> None:
    with pytest.raises(CredentialsError):
        use(lambda stores: stores.info(URL), endpoint_url=fake.endpoint_url, profile="nobody")


@pytest.mark.parametrize("options", [{"speed": 9}, {"client_kwargs": {"speed": 9}}, {"config_kwargs": {"speed": 9}}])
def test_an_option_that_nobody_knows_is_named(fake: HttpObjects, options: dict[str, Any]) -> None:
    with pytest.raises(StorageError, match="unknown S3 option 'speed'"):
        read(fake, **options)


def test_options_that_are_none_are_as_if_they_were_not_given(fake: HttpObjects) -> None:
    assert read(fake, client_kwargs=None, config_kwargs=None, s3_additional_kwargs=None) == CONTENT[10:5000]


def look_up(server: HttpObjects, **options: Any) -> int | None:
    signed = {"endpoint_url": server.endpoint_url, "key": "AKIAEXAMPLE", "secret": SECRET, **options}
    shard: ShardRef = use(lambda stores: stores.info(URL), **signed)
    return shard.nbytes


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_who_pays_is_said_with_every_request(fake: HttpObjects, reader: str) -> None:
    assert read(fake, reader=reader, requester_pays=True) == CONTENT[10:5000]
    assert look_up(fake, reader=reader, requester_pays=True) == len(CONTENT)
    assert [seen.headers["x-amz-request-payer"] for seen in fake.requests] == ["requester"] * 2


def test_what_s3fs_adds_to_a_request_is_added_and_the_library_sends_it(fake: HttpObjects) -> None:
    more = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32, "ServerSideEncryption": "AES256"}
    assert read(fake, s3_additional_kwargs=more) == CONTENT[10:5000]
    assert look_up(fake, s3_additional_kwargs=more) == len(CONTENT)
    name = "x-amz-server-side-encryption"
    assert [seen.headers[f"{name}-customer-algorithm"] for seen in fake.requests] == ["AES256"] * 2
    assert not any(name in seen.headers for seen in fake.requests)  # which is for who writes
    with pytest.raises(PlanError, match="reader='plain' cannot send SSECustomerAlgorithm, SSECustomerKey"):
        read(fake, s3_additional_kwargs=more, reader="plain")


def test_what_s3fs_adds_to_writing_alone_leaves_reading_as_it_is(fake: HttpObjects) -> None:
    assert read(fake, s3_additional_kwargs={"ServerSideEncryption": "AES256"}) == CONTENT[10:5000]
    assert not any("user-agent" in seen.headers for seen in fake.requests)


def test_anonymous_requests_are_not_signed(fake: HttpObjects) -> None:
    use(lambda stores: read_range(stores, ShardRef(URL), 0, 1), endpoint_url=fake.endpoint_url, anon=True)
    assert "authorization" not in fake.requests[0].headers


def test_an_impossible_bucket_name_is_told(fake: HttpObjects) -> None:
    with pytest.raises(StorageError, match="invalid for S3"):
        use(lambda stores: stores.info("s3://no bucket/x"), endpoint_url=fake.endpoint_url, anon=True)


def test_a_listing_longer_than_a_page_is_complete(s3_endpoint: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        s3_endpoint.put(f"s3://test-bucket/pages/{number}", b"1")
    monkeypatch.setattr(key_search, "PAGE_KEYS", 3)
    found = use(lambda stores: stores.glob("s3://test-bucket/pages/*"), **s3_endpoint.storage_options)
    assert [shard.url[-1] for shard in found] == list("0123456")


def test_an_object_replaced_between_listing_and_reading_is_noticed(s3_endpoint: ObjectServer) -> None:
    url = "s3://test-bucket/replaced/x"
    s3_endpoint.put(url, b"before")

    async def case(stores: StoreSet) -> None:
        (shard,) = await stores.glob(url)
        assert await read_range(stores, shard, 0, 6) == b"before"
        s3_endpoint.put(url, b"behind")
        with pytest.raises(ObjectChangedError):
            await read_range(stores, shard, 0, 6)

    use(case, **s3_endpoint.storage_options)


def test_bucket_and_object_are_told_apart(s3_endpoint: ObjectServer) -> None:
    options = s3_endpoint.storage_options
    with pytest.raises(ObjectNotFoundError, match="bucket 'no-such-bucket' does not exist"):
        use(lambda stores: stores.info("s3://no-such-bucket/x"), **options)
    with pytest.raises(ObjectNotFoundError, match="'test-bucket' has no such object"):
        use(lambda stores: stores.info("s3://test-bucket/no-such-object"), **options)
    with pytest.raises(NoMatchError, match="'test-bucket'"):
        use(lambda stores: stores.glob("s3://test-bucket/no-such-*"), **options)


def test_half_of_a_pair_of_credentials_is_named() -> None:
    from botocore.exceptions import PartialCredentialsError

    error = PartialCredentialsError(provider="explicit", cred_var="aws_secret_access_key")
    translated = translate_s3_error("s3://bucket/x", error)
    assert isinstance(translated, CredentialsError)
    assert "aws_secret_access_key is missing; pass both key= and secret=" in str(translated)


@pytest.mark.parametrize(
    ("url", "hinted"), [("s3://b/corpus", True), ("s3://b/corpus/", True), ("s3://b/a.txt", False)]
)
def test_a_folder_in_place_of_an_object_says_what_to_add(url: str, hinted: bool) -> None:
    assert ("add '/*'" in str(translate_s3_answer(url, 404, "NoSuchKey", ""))) == hinted
