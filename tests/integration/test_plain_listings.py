"""Pages of S3 listings come by plain GETs; the library requests the pages that a plain GET cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from leaks import leaves_nothing
from raw_server import Answer, RawRequest, raw_server

from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectNotFoundError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
    WrongAnswerError,
)
from aiostream_data.storage import s3_page_requests
from aiostream_data.storage.s3 import S3Store
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.object_api.accounts import Account

PATTERN = "s3://bucket/d/*"
PAGE = b"<ListBucketResult><Contents><Key>d/a</Key><Size>7</Size></Contents></ListBucketResult>"


def listed(pattern: str = PATTERN, times: int = 1, **options: Any) -> tuple[list[str], S3Store]:
    """Return the keys that match, and the closed store."""

    async def main() -> tuple[list[str], S3Store]:
        store = S3Store(options, asyncio.to_thread)
        try:
            for _ in range(times):
                found = await store.glob(pattern)
        finally:
            await store.aclose()
        return [shard.url.removeprefix("s3://bucket/") for shard in found], store

    return asyncio.run(asyncio.wait_for(main(), 30))


def plain_lists(server: FaultServer) -> list[bool]:
    """Return for each list request whether the package sent it itself: the library names itself."""
    return ["user-agent" not in seen.headers for seen in server.log() if seen.kind == "list"]


def served(fault: Fault | None = None, **options: Any) -> tuple[list[str], list[bool], S3Store]:
    """List three objects three times; ``fault`` is in each page."""
    with leaves_nothing(), fault_server("s3") as server:
        for name in "abc":
            server.put(f"bucket/d/{name}", b"x")
        if fault is not None:
            server.set_rules(Rule(fault, kind="list"))
        keys, store = listed(times=3, **{**server.storage_options, **options})
        return keys, plain_lists(server), store


def refused(answer: Answer, kind: type[StorageError], words: str, **options: Any) -> StorageError:
    with leaves_nothing(), raw_server(answer) as server, pytest.raises(kind, match=words) as caught:
        listed(endpoint_url=server.url, anon=True, **options)
    return caught.value


def test_pages_come_over_one_connection_and_count_as_lists() -> None:
    keys, plain, store = served()
    assert (keys, plain) == (["d/a", "d/b", "d/c"], [True] * 3)
    counters = store.counters
    assert (counters.lists, counters.gets, counters.received_nbytes) == (3, 0, 0)
    assert (counters.connections_opened, counters.connections_reused) == (1, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"reader": "library"},
        {"s3_additional_kwargs": {"ExpectedBucketOwner": "me"}},
        {"s3_additional_kwargs": {"FetchOwner": True}},
        {"client_kwargs": {"region_name": "us-east-1", "use_ssl": False, "aws_session_token": "x"}},
    ],
)
def test_options_that_a_plain_get_cannot_send_are_left_to_the_library(options: dict[str, Any]) -> None:
    keys, plain, store = served(**options)
    assert (keys, plain, store.counters.lists) == (["d/a", "d/b", "d/c"], [False] * 3, 3)


def test_who_pays_is_said_with_every_page() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        server.put("bucket/d/a", b"x")
        listed(**server.storage_options, requester_pays=True)
        assert [seen.headers["x-amz-request-payer"] for seen in server.log()] == ["requester"]


@pytest.mark.parametrize(
    "fault", [Fault(chunked=True), Fault(interim=2), Fault(extra=b"more"), Fault(close_after=True)]
)
def test_pages_in_chunks_and_other_usual_answers_need_no_library(fault: Fault) -> None:
    keys, plain, _ = served(fault)
    assert (keys, plain) == (["d/a", "d/b", "d/c"], [True] * 3)


def test_the_library_reads_unusual_pages_and_soon_asks_for_them_at_once() -> None:
    keys, plain, store = served(Fault(without=("Content-Length",), close_after=True))
    assert (keys, plain) == (["d/a", "d/b", "d/c"], [True, False] * 3)
    assert store._route.leads_to(store._plain.known("bucket").target)  # type: ignore[union-attr]
    assert not store._route.leads_to(store._plain.known("bucket").target, "LIST")  # type: ignore[union-attr]


@pytest.mark.parametrize("status", [400, 301])
def test_the_region_of_the_bucket_is_learnt_from_the_first_page(status: int) -> None:
    keys, plain, _ = served(Fault(region="eu-central-1", status=status))
    assert (keys, plain) == (["d/a", "d/b", "d/c"], [True] * 4)


def test_a_store_that_does_not_tell_the_region_is_left_to_the_library() -> None:
    def answer(request: RawRequest) -> None:
        if "user-agent" in request.headers:
            request.answer(200, PAGE)
        else:
            request.answer(301, b"<Error><Code>PermanentRedirect</Code></Error>")

    with leaves_nothing(), raw_server(answer) as server:
        assert listed(endpoint_url=server.url, anon=True)[0] == ["d/a"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(status=503, code="SlowDown"), StoreBusyError),
        (Fault(status=403, code="AccessDenied"), AccessDeniedError),
        (Fault(status=404, code="NoSuchBucket"), ObjectNotFoundError),
        (Fault(refuse="unknown_key"), CredentialsError),
        (Fault(truncate_at="middle"), StoreUnreachableError),
        (Fault(truncate_at="middle", chunked=True), StoreUnreachableError),
        (Fault(reset_at="middle", chunked=True), StoreUnreachableError),
        (Fault(end_early_at="middle", chunked=True), WrongAnswerError),
        (Fault(status=204), WrongAnswerError),
    ],
)
@pytest.mark.parametrize("reader", ["plain", "library"])
def test_failures_have_the_same_errors_on_both_paths(fault: Fault, kind: type[StorageError], reader: str) -> None:
    if reader == "library" and fault.status == 204:
        pytest.skip("botocore takes any answer without a body as an empty listing")
    with pytest.raises(kind) as caught:
        served(fault, reader=reader)
    assert str(caught.value).startswith(PATTERN)


def test_a_rate_limit_reaches_the_lane_with_its_pause() -> None:
    error = refused(
        lambda request: request.answer(503, b"<Error><Code>SlowDown</Code></Error>", retry_after="7"),
        StoreBusyError,
        "SlowDown",
    )
    assert isinstance(error, StoreBusyError)
    assert (error.is_throttled, error.retry_after_s) == (True, 7.0)


def test_an_error_document_with_status_200_is_a_wrong_answer() -> None:
    body = b"<Error><Code>InternalError</Code></Error>"
    refused(lambda request: request.answer(200, body), WrongAnswerError, "<Error> with code InternalError")


def test_a_silent_store_is_a_timeout() -> None:
    refused(lambda request: request.stay_silent(), StoreTimeoutError, "first_byte_timeout", first_byte_timeout=0.1)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_page_above_the_limit_is_an_error(is_chunked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_page_requests, "MOST_PAGE_NBYTES", 1000)

    def answer(request: RawRequest) -> None:
        framing = b"transfer-encoding: chunked" if is_chunked else b"content-length: 99999999999"
        request.send(b"HTTP/1.1 200 x\r\n" + framing + b"\r\n\r\n" + b"fff\r\n" * is_chunked + b"x" * 2000)
        request.stay_silent()

    refused(answer, WrongAnswerError, "larger than 1000 bytes")


@pytest.mark.parametrize("tokens", [["x"], ["x", "y"]])
def test_a_token_that_comes_again_ends_the_listing_with_an_error(tokens: list[str]) -> None:
    def answer(request: RawRequest) -> None:
        number = len(server.requests)
        key, token = f"<Contents><Key>d/{number}</Key><Size>1</Size></Contents>", tokens[number % len(tokens)]
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        request.answer(200, f"<ListBucketResult>{more}{key}</ListBucketResult>".encode())

    with leaves_nothing(), raw_server(answer) as server:
        with pytest.raises(StorageError, match="same page token twice"):
            listed(endpoint_url=server.url, anon=True)
        assert len(server.requests) <= 1 + len(tokens)


def test_a_large_page_is_parsed_on_a_worker_thread() -> None:
    keys = "".join(f"<Contents><Key>d/{n:04}</Key><Size>1</Size></Contents>" for n in range(1000))
    body = f"<ListBucketResult>{keys}</ListBucketResult>".encode()
    ran: list[Callable[..., Any]] = []

    async def run_blocking(function: Callable[..., Any], *args: Any) -> Any:
        ran.append(function)
        return await asyncio.to_thread(function, *args)

    async def main(url: str) -> int:
        store = S3Store({"endpoint_url": url, "anon": True}, run_blocking)
        try:
            return len(await store.glob(PATTERN))
        finally:
            await store.aclose()

    with leaves_nothing(), raw_server(lambda request: request.answer(200, body)) as server:
        assert asyncio.run(main(server.url)) == 1000
    assert [function.__name__ for function in ran][-1] == "parse_page"


def test_expired_credentials_are_renewed_and_never_told() -> None:
    with leaves_nothing(), fault_server("s3") as server:
        server.put("bucket/d/a", b"x")
        server.set_accounts(Account(key="AKID", secret="hunter2hunter2"))
        options = {**server.storage_options, "key": "AKID", "secret": "hunter2hunter2"}
        server.set_rules(Rule(Fault(refuse="expired"), kind="list", times=1))
        keys, store = listed(**options)
        assert (keys, store.counters.credentials_renewed) == (["d/a"], 1)
        with pytest.raises(AccessDeniedError, match="secret key") as caught:
            listed(**{**options, "secret": "another-secret"})
    assert "another-secret" not in str(caught.value)
