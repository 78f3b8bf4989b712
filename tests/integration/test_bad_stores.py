"""Whatever is wrong with a store, its name or its keys is told by one error: in a sentence, in time, and no secret."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
    WrongAnswerError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import CONTENT
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Refusal, Rule
from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.object_api.dialect import DialectName

DIALECTS: tuple[DialectName, ...] = ("s3", "gcs", "http")
SECRET, TOKEN = "SECRETkeySECRETkey", "SECRETtokenSECRETtoken"
WITHIN_S = 20.0
EDGE = 50
"""Bytes at either end that are not asked for, so that it is a range that is."""

PATIENCE = {"connect_timeout": 5.0, "first_byte_timeout": 5.0, "read_timeout": 5.0, "retry_attempts": 2}
IMPATIENCE = {"first_byte_timeout": 0.2, "read_timeout": 0.2, "retry_attempts": 1}

Between = Callable[[FaultServer, str], None]


def nothing(server: FaultServer, url: str) -> None:
    """Leave the server as it is."""


@dataclass(frozen=True)
class Bad:
    """Something that is wrong.

    Attributes:
        kind: The error that says so.
        words: Are in its message.
        fault: What the server does to reads.
        name: Of the object that is asked for, where it is not the one that is there.
        between: Happens after the size was asked for, and before the bytes are.
        nbytes: The size that is believed in, with which nobody asks for it; None to ask.
        only: The dialects in which it can happen.
        status: Of the answer that the message names; 0 where it was no answer that was wrong.
        options: In place of the usual ones.
    """

    kind: type[StorageError]
    words: str
    fault: Fault | None = None
    name: str = "bucket/key"
    between: Between = nothing
    nbytes: int | None = None
    only: tuple[DialectName, ...] = DIALECTS
    status: int = 0
    options: Mapping[str, float] = field(default_factory=dict)


def refused(reason: Refusal, kind: type[StorageError], words: str, **more: Any) -> Bad:
    return Bad(kind, words, Fault(refuse=reason), **more)


BAD = {
    "wrong bucket": Bad(
        ObjectNotFoundError, "bucket 'nobody' does not exist", name="nobody/key", only=("s3", "gcs"), status=404
    ),
    "wrong key": Bad(ObjectNotFoundError, "no such object", name="bucket/nothing", status=404),
    "a directory": Bad(ObjectNotFoundError, "no such object", name="bucket/folder", status=404),
    "a directory with its slash": Bad(ObjectNotFoundError, "no such object", name="bucket/folder/", status=404),
    "a bucket": Bad(ObjectNotFoundError, "is a bucket", name="bucket", only=("s3", "gcs")),
    "a bucket with its slash": Bad(ObjectNotFoundError, "is a bucket", name="bucket/", only=("s3", "gcs")),
    "access denied": refused("denied", AccessDeniedError, "refused access", status=403, only=("s3", "http")),
    "a wrong secret": refused("bad_signature", AccessDeniedError, "secret key", only=("s3",), status=403),
    "an unknown key": refused("unknown_key", CredentialsError, "access key", only=("s3",), status=403),
    "an unknown login": refused("unknown_key", CredentialsError, "credentials", only=("http",), status=401),
    "a private bucket": refused("unsigned", CredentialsError, "no Google credentials", only=("gcs",), status=401),
    "expired credentials": refused("expired", CredentialsError, "expired", only=("s3",), status=400),
    "a wrong clock": refused("skewed", AccessDeniedError, "clock", only=("s3",), status=403),
    "busy": Bad(StoreBusyError, "cannot serve", Fault(status=503, retry_after="0"), status=503),
    "an answer that nobody knows": Bad(StorageError, "unexpected", Fault(status=418), status=418),
    "it vanishes": Bad(
        ObjectNotFoundError, "no such object", between=lambda server, url: server.delete("bucket/key"), status=404
    ),
    "it changes": Bad(
        ObjectChangedError, "replaced", between=lambda server, url: void(server.put("bucket/key", CONTENT[::-1]))
    ),
    "it changes on the way": Bad(ObjectChangedError, "replaced", Fault(change="before")),
    "it is shorter than was said": Bad(WrongAnswerError, "size changed from", nbytes=len(CONTENT) + 5_000),
    "it ends early": Bad(StoreUnreachableError, "bytes", Fault(end_early_at="middle")),
    "it says that it is longer": Bad(
        WrongAnswerError, "instead of the requested", Fault(content_range="bytes 0-99999/100000")
    ),
    "it says that it is shorter": Bad(StorageError, "bytes", Fault(content_range="bytes 0-4/5")),
    "another range": Bad(StorageError, "bytes", Fault(shift_range=3)),
    "two lengths": Bad(StoreUnreachableError, "HTTP", Fault(duplicate_length=7)),
    "no HTTP": Bad(StoreUnreachableError, "HTTP", Fault(raw=b"SSH-2.0-OpenSSH\r\n\r\n")),
    "silence": Bad(StoreTimeoutError, "_timeout", Fault(stall_at="start"), options=IMPATIENCE),
    "silence in the middle": Bad(StoreTimeoutError, "_timeout", Fault(stall_at="middle"), options=IMPATIENCE),
    "a reset": Bad(StoreUnreachableError, "connection", Fault(reset_at="start")),
}

CASES = [
    (dialect, reader, name)
    for name, bad in BAD.items()
    for dialect in bad.only
    for reader in ("plain", "library")
    if reader == "plain" or bad.status or dialect == "http"  # what is wrong on the wire is all the same to aiohttp
]


def void(_: object) -> None:
    """Forget what came back."""


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[DialectName, FaultServer]]:
    with fault_server("s3") as s3, fault_server("gcs") as gcs, fault_server("http") as http:
        yield {"s3": s3, "gcs": gcs, "http": http}


def options_of(server: FaultServer) -> dict[str, Any]:
    secrets: dict[DialectName, dict[str, Any]] = {
        "s3": {"key": "AKIAEXAMPLE", "secret": SECRET, "token": TOKEN},
        "gcs": {},
        "http": {"auth": ("me", SECRET)},
    }
    return {**server.storage_options, **secrets[server.dialect], **PATIENCE}


def use(url: str, options: dict[str, Any], nbytes: int | None, between: Callable[[], None]) -> None:
    async def main() -> None:
        stores = StoreSet({"retry_connect_total_s": 0.3, **options}, asyncio.to_thread)
        try:
            shard = await stores.info(url) if nbytes is None else ShardRef(url, nbytes)
            between()
            nbytes_asked = (shard.nbytes or 2 * EDGE) - 2 * EDGE
            await stores.read_into(shard, EDGE, memoryview(bytearray(nbytes_asked)))
        finally:
            await stores.aclose()

    asyncio.run(asyncio.wait_for(main(), WITHIN_S))


def told(
    kind: type[StorageError],
    caplog: pytest.LogCaptureFixture,
    url: str,
    options: dict[str, Any],
    nbytes: int | None = None,
    between: Callable[[], None] = lambda: None,
) -> str:
    """Return the message, after looking at everything else that may tell of the error."""
    for name in ("", "aiohttp", "botocore", "aiobotocore", "s3fs", "gcsfs", "asyncio"):
        caplog.set_level(logging.DEBUG, name or None)
    began = time.monotonic()
    with leaves_nothing(), pytest.raises(kind) as caught:
        use(url, options, nbytes, between)
    assert time.monotonic() - began < WITHIN_S
    error = caught.value
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
    everything = "".join([*traceback.format_exception(error), repr(error), repr(pickle.dumps(error)), caplog.text])
    assert [word for word in (SECRET, TOKEN, "do-not-tell") if word in everything] == []
    message = str(error)
    assert "\n" not in message
    assert len(message) < 400
    return message


@pytest.mark.parametrize(("dialect", "reader", "name"), CASES)
def test_what_is_wrong_with_a_store_is_told(
    dialect: DialectName,
    reader: str,
    name: str,
    servers: dict[DialectName, FaultServer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, bad = servers[dialect], BAD[name]
    server.set_rules()
    server.put("bucket/key", CONTENT)
    server.put("bucket/folder/part", CONTENT)
    url = server.url(bad.name)
    if bad.fault is not None:
        server.set_rules(Rule(bad.fault, kind="get"))
    message = told(
        bad.kind,
        caplog,
        url,
        {**options_of(server), **bad.options, "reader": reader},
        bad.nbytes,
        lambda: bad.between(server, url),
    )
    assert message.startswith(f"{url}: ")
    assert bad.words in message
    if bad.status:
        assert f"HTTP {bad.status}" in message
        assert "request id" in message


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("host", "words"), [("no-such-host.invalid", "cannot be resolved"), ("127.0.0.1", "was refused")]
)
def test_an_endpoint_that_is_none_is_told(
    dialect: DialectName, reader: str, host: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server = FaultServer(dialect, f"http://{host}:{probe.getsockname()[1]}", lambda *_: (200, b""))
        url = server.url("bucket/key")
        message = told(StoreUnreachableError, caplog, url, {**options_of(server), "reader": reader}, 1_000)
    assert message.startswith(f"{url}: ")
    assert words in message


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("fault", [Fault(status=403), Fault(raw=b"HTTP/1.1 2000 no\r\n\r\n"), Fault(reset_at="middle")])
def test_a_signed_url_is_told_without_its_signature(
    fault: Fault, reader: str, servers: dict[DialectName, FaultServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = servers["http"]
    server.set_rules()
    url = server.put("bucket/signed", CONTENT)
    server.set_rules(Rule(fault))
    signed = f"{url}?X-Amz-Signature=do-not-tell"
    message = told(StorageError, caplog, signed, {**PATIENCE, "reader": reader}, len(CONTENT))
    assert message.startswith(f"{url}?X-Amz-Signature=***: ")


def test_credentials_that_fit_tell_nothing_either(
    servers: dict[DialectName, FaultServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = servers["s3"]
    server.set_rules()
    server.put("bucket/key", CONTENT)
    server.set_accounts(Account(key="AKIAEXAMPLE", secret=SECRET, token=TOKEN))
    try:
        message = told(ObjectNotFoundError, caplog, server.url("bucket/nothing"), options_of(server))
    finally:
        server.set_accounts()
    assert "HTTP 404" in message
    assert "'Authorization': b'***'" in caplog.text  # botocore did write its requests down


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_a_token_of_google_that_nobody_renews_is_called_expired(
    reader: str, servers: dict[DialectName, FaultServer], caplog: pytest.LogCaptureFixture
) -> None:
    from google.auth.credentials import Credentials

    class Stale(Credentials):
        """Credentials whose every token is the same, and old."""

        def refresh(self, request: Any) -> None:
            self.token = TOKEN

    server = servers["gcs"]
    server.set_rules()
    url = server.put("bucket/key", CONTENT)
    server.set_accounts(Account(token=TOKEN, expires_s=time.time() - 1.0))
    options = {**options_of(server), "token": Stale(), "reader": reader}  # type: ignore[no-untyped-call]
    try:
        message = told(CredentialsError, caplog, url, options, len(CONTENT))
    finally:
        server.set_accounts()
    assert "expired" in message
    assert "HTTP 401" in message
    assert "request id" in message


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_loader_raises_it_as_it_is_and_shows_no_secret(
    dialect: DialectName, servers: dict[DialectName, FaultServer]
) -> None:
    server = servers[dialect]
    server.set_rules()
    server.put("bucket/key", CONTENT)
    url = server.url("bucket/nothing")
    dataset = Dataset.from_files(url, storage_options=options_of(server))
    with leaves_nothing(), pytest.raises(ObjectNotFoundError) as caught, dataset.open():
        pytest.fail("it was opened without its object")
    shown = [dataset.explain(), repr(dataset), str(dataset)]
    with Dataset.from_files(server.url("bucket/key"), storage_options=options_of(server)).open() as loader:
        shown += [str(len(list(loader))), repr(loader), loader.dump(), str(loader.report()), str(loader.stats())]
    assert str(caught.value).startswith(f"{url}: ")
    everything = "".join([*shown, *traceback.format_exception(caught.value)])
    assert [word for word in (SECRET, TOKEN) if word in everything] == []
