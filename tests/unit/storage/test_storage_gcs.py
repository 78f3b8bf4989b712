"""GCS: paging, refusals and retries, against answers that the emulator does not give."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import google.auth.exceptions
import pytest
import requests
from http_server import HttpFault, HttpObjects

from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectChangedError,
    ObjectNotFoundError,
    PlanError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import gcs
from aiostream_data.storage.gcs import make_file_system
from aiostream_data.storage.gcs_errors import translate_gcs_error
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import CONTENT, read_range

URL = "gs://bucket/x"
TOKEN = "ya29.do-not-tell"
LISTING = "/storage/v1/b/bucket/o"


def use(case: Callable[[StoreSet], Awaitable[Any]], server: HttpObjects, **options: Any) -> Any:
    async def main() -> Any:
        stores = StoreSet({"retry_attempts": 1, "endpoint_url": server.endpoint_url, **options}, asyncio.to_thread)
        try:
            return await case(stores)
        finally:
            await stores.aclose()

    return asyncio.run(main())


@pytest.fixture
def fake(http_objects: HttpObjects) -> HttpObjects:
    """A server that holds one object, and does what its faults say."""
    http_objects.put("/download/storage/v1/b/bucket/o/x", CONTENT)
    return http_objects


def read(server: HttpObjects, **options: Any) -> bytes:
    result: bytes = use(lambda stores: read_range(stores, ShardRef(URL), 10, 5000), server, **options)
    return result


def refusal(status: int, message: str) -> HttpFault:
    return HttpFault(status=status, body=json.dumps({"error": {"code": status, "message": message}}).encode())


def page(names: list[str], token: str = "") -> HttpFault:
    found = {"items": [{"name": name, "size": "1", "generation": "7"} for name in names], "nextPageToken": token}
    return HttpFault(status=200, body=json.dumps(found).encode())


def test_a_listing_in_pages_is_complete_and_sorted(fake: HttpObjects) -> None:
    fake.faults.extend([page(["a/2", "a/1"], "more"), page([], "even more"), page(["a/3", "a/3.txt"])])
    found = use(lambda stores: stores.glob("gs://bucket/a/?"), fake)
    assert found == [ShardRef(f"gs://bucket/a/{number}", 1, "7") for number in (1, 2, 3)]
    assert ["pageToken=more" in seen.path for seen in fake.requests] == [False, True, False]
    assert "pageToken=even" in fake.requests[2].path


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"items": 3}', b'{"items": [{}]}', b"\xff"])
def test_a_listing_that_makes_no_sense_is_a_storage_error(fake: HttpObjects, body: bytes) -> None:
    fake.faults.append(HttpFault(status=200, body=body))
    with pytest.raises(StorageError, match=r"gs://bucket/\*"):
        use(lambda stores: stores.glob("gs://bucket/*"), fake)


@pytest.mark.parametrize(
    ("status", "message", "kind", "words"),
    [
        (404, "No such object: bucket/x", ObjectNotFoundError, "no such object"),
        (404, "The specified bucket does not exist.", ObjectNotFoundError, "bucket 'bucket' does not exist"),
        (401, "Anonymous caller", CredentialsError, "GOOGLE_APPLICATION_CREDENTIALS"),
        (403, "Anonymous caller", CredentialsError, "not public"),
        (412, "Precondition", ObjectChangedError, "replaced"),
        (429, "Slow down", StoreBusyError, "Slow down"),
        (503, "Backend\nerror", StoreBusyError, "Backend error"),
    ],
)
def test_each_refusal_has_its_error(
    fake: HttpObjects, status: int, message: str, kind: type[StorageError], words: str
) -> None:
    fake.faults.append(refusal(status, message))
    with pytest.raises(kind, match=words) as caught:
        read(fake)
    assert type(caught.value) is kind
    assert URL in str(caught.value)


def test_refused_credentials_are_not_called_missing(fake: HttpObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FETCH_RAW_TOKEN_EXPIRY", "false")  # else gcsfs asks Google about the token
    fake.faults.append(refusal(403, "does not have storage.objects.get access"))
    with pytest.raises(AccessDeniedError, match="permissions") as caught:
        read(fake, token="ya29.hunter2")
    assert fake.requests[0].headers["authorization"] == "Bearer ya29.hunter2"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_a_token_that_is_given_as_text_is_sent_and_nobody_else_is_asked_about_it(
    fake: HttpObjects, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: Any, **__: Any) -> Any:
        raise requests.ConnectionError(f"Max retries exceeded with url: /tokeninfo?access_token={TOKEN}")

    monkeypatch.setattr(requests.Session, "request", ask)
    assert read(fake, token=TOKEN, reader=reader) == CONTENT[10:5000]
    assert [seen.headers["authorization"] for seen in fake.requests] == [f"Bearer {TOKEN}"]
    fake.faults.extend([refusal(401, "Invalid Credentials")] * 2)
    with pytest.raises(CredentialsError, match="expired") as caught:
        read(fake, token=TOKEN, reader=reader)
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_credentials_that_google_cannot_be_asked_about_are_no_reason_to_show_them(
    fake: HttpObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(options: Any) -> Any:
        raise requests.ConnectionError(f"Max retries exceeded with url: /tokeninfo?access_token={TOKEN}")

    monkeypatch.setattr(gcs, "make_file_system", fail)
    with pytest.raises(StoreUnreachableError, match="cannot reach Google's token server") as caught:
        read(fake)
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_a_file_of_credentials_that_is_not_there_is_told(fake: HttpObjects, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="got the path of a missing file"):
        read(fake, token=str(tmp_path / "nobody.json"))


@pytest.mark.parametrize("kind", ["RefreshError", "DefaultCredentialsError", "MalformedError"])
def test_errors_of_google_auth_are_a_matter_of_credentials(kind: str) -> None:
    error = getattr(google.auth.exceptions, kind)("no")
    assert isinstance(translate_gcs_error(URL, error), CredentialsError)
    lost = translate_gcs_error(URL, google.auth.exceptions.TransportError("no"))  # type: ignore[no-untyped-call]
    assert isinstance(lost, StoreUnreachableError)


@pytest.mark.parametrize(
    "fault", [refusal(503, "busy"), refusal(500, ""), HttpFault(cut_after=0), HttpFault(cut_after=3000)]
)
def test_a_request_that_failed_once_is_repeated(fake: HttpObjects, fault: HttpFault) -> None:
    fake.faults.append(fault)
    assert read(fake, retry_attempts=2) == CONTENT[10:5000]
    assert len(fake.requests) == 2


def test_an_endpoint_that_never_answers_is_a_timeout(fake: HttpObjects) -> None:
    fake.faults.append(HttpFault(hang=True))
    with pytest.raises(StoreTimeoutError, match="first_byte_timeout"):
        read(fake, read_timeout=0.1)


def test_a_closed_port_is_unreachable() -> None:
    nobody = HttpObjects("http://127.0.0.1:1")
    with pytest.raises(StoreUnreachableError, match="refused"):
        read(nobody)


def test_the_generation_seen_when_listing_is_the_one_asked_for(fake: HttpObjects) -> None:
    shard = ShardRef(URL, len(CONTENT), "7")
    assert use(lambda stores: read_range(stores, shard, 0, 3), fake) == CONTENT[:3]
    assert "ifGenerationMatch=7" in fake.requests[0].path


def test_the_emulator_of_the_environment_is_used(fake: HttpObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.endpoint_url.removeprefix("http://"))
    file_system = make_file_system({})
    assert file_system._location == fake.endpoint_url
    assert file_system.credentials.credentials is None
