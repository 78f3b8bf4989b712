"""``retry_total_s`` bounds a call with everything it waits for, however a server draws its answer out."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp  # noqa: F401 - the first request through it would otherwise load it, which takes time
import fsspec
import pytest
from leaks import leaves_nothing
from raw_server import Answer, RawRequest, RawServer, raw_server

from aiostream_data import Dataset
from aiostream_data.errors import StorageError, StoreBusyError, StoreTimeoutError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.cache.options import ShardCache
from aiostream_data.storage.parallel_read import parts_of, read_parts
from aiostream_data.storage.stores import StoreSet

TOTAL_S = 0.5
NBYTES = 1 << 20
HEAD = b'HTTP/1.1 206 x\r\ncontent-length: 1048576\r\ncontent-range: bytes 0-1048575/1048576\r\netag: "1"\r\n\r\n'
CHUNKED = HEAD.replace(b"content-length: 1048576", b"transfer-encoding: chunked")
CHUNKS = b"100000\r\n" + b"x" * NBYTES + b"\r\n0\r\n"
OPENING = b"HTTP/1.1 200 x\r\n"


def forever(beginning: bytes, piece: bytes, pause_s: float = 0.0) -> Answer:
    def answer(request: RawRequest) -> None:
        request.send(beginning)
        request.send_forever(piece, pause_s)

    return answer


SLOW: dict[str, Answer] = {
    "no answer": RawRequest.stay_silent,
    "an interim answer every now and then": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.1),
    "interim answers with headers": forever(b"", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", 0.1),
    "a status line without an end": forever(b"HTTP/1.1 200 ", b"x", 0.1),
    "a header every now and then": forever(OPENING, b"x-y: z\r\n", 0.1),
    "a header byte by byte": forever(OPENING + b"x-y: ", b"z", 0.1),
    "a folded line every now and then": forever(OPENING + b"x-y: z\r\n", b" z\r\n", 0.1),
    "a body byte by byte": forever(HEAD, b"x", 0.1),
    "a body that stops": forever(HEAD + b"x" * 1000, b"", 0.1),
    "a chunk every now and then": forever(CHUNKED, b"1\r\nx\r\n", 0.1),
    "a chunk size byte by byte": forever(CHUNKED, b"0", 0.1),
    "a chunk extension byte by byte": forever(CHUNKED + b"1;", b"x", 0.1),
    "a trailer every now and then": forever(CHUNKED + CHUNKS, b"x-y: z\r\n", 0.1),
    "a refusal whose body trickles": forever(b"HTTP/1.1 403 x\r\ncontent-length: 9999\r\n\r\n", b"x", 0.1),
    "a refusal in endless chunks": forever(b"HTTP/1.1 403 x\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.1),
}
FLOODS: dict[str, Answer] = {
    "interim answers": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "headers": forever(OPENING, b"x-y: z\r\n" * 1000),
    "one header": forever(OPENING + b"x-y: ", b"z" * 10_000),
    "folded lines": forever(OPENING + b"x-y: z\r\n", b" z\r\n" * 1000),
    "a hundred thousand headers": forever(OPENING + b"".join(b"x-%d: y\r\n" % i for i in range(100_000)), b"\r\n", 0.1),
    "a chunk extension": forever(CHUNKED + b"1;", b"x" * 1000),
    "chunks of one byte": forever(
        HEAD.replace(b"content-length: 1048576", b"transfer-encoding: chunked"), b"1\r\nx\r\n"
    ),
}


LOOKED_UP = [name for name in SLOW if "body" not in name and "chunk" not in name and "trailer" not in name]
"""HEAD requests have no body."""

Case = Callable[[StoreSet], Awaitable[Any]]


async def outcome(case: Case, stores: StoreSet) -> tuple[BaseException | None, float]:
    """Return the error with which a call ends, and the seconds it took."""
    began = time.monotonic()
    try:
        await asyncio.wait_for(case(stores), 20)
    except StorageError as error:
        return error, time.monotonic() - began
    return None, time.monotonic() - began


def read(url: str) -> Case:
    return lambda stores: stores.read_into(ShardRef(url, NBYTES), 0, memoryview(bytearray(NBYTES)))


def info(url: str) -> Case:
    return lambda stores: stores.info(url)


def glob(url: str) -> Case:
    return lambda stores: stores.glob(f"{url}/*")


WAYS = [(store, reader) for store in ("http", "s3", "gs") for reader in ("plain", "library")]


def options_for(store: str, server: RawServer) -> dict[str, Any]:
    options: dict[str, dict[str, Any]] = {"http": {}, "s3": {"anon": True}, "gs": {"token": "anon"}}
    return {**options[store], **({} if store == "http" else {"endpoint_url": server.url})}


def check_bounded(answers: dict[str, Answer], case: Callable[[str], Case], store: str, **options: Any) -> None:
    """Ask for one object per answer, all at once; each call must fail in time, with an error that names the object."""

    def answer(request: RawRequest) -> None:
        number = re.search(r"object-(\d+)", request.target)
        assert number is not None
        list(answers.values())[int(number[1])](request)

    async def main(server: RawServer) -> list[tuple[BaseException | None, float]]:
        place = server.url if store == "http" else f"{store}://bucket"
        urls = [f"{place}/object-{number}" for number in range(len(answers))]
        stores = StoreSet({"retry_total_s": TOTAL_S, **options_for(store, server), **options}, asyncio.to_thread)
        try:
            with suppress(StorageError):  # making a client takes long
                await stores.info(urls[0])
            return await asyncio.gather(*(outcome(case(url), stores) for url in urls))
        finally:
            await stores.aclose()

    with leaves_nothing(), raw_server(answer) as server:
        outcomes = asyncio.run(main(server))
    for number, (name, (error, took_s)) in enumerate(zip(answers, outcomes, strict=True)):
        assert isinstance(error, StorageError), name
        assert took_s < TOTAL_S + 1.0, name
        assert f"object-{number}" in str(error), name


@pytest.mark.parametrize(("store", "reader"), WAYS)
def test_a_read_whose_answer_trickles_ends_by_the_deadline(store: str, reader: str) -> None:
    check_bounded(SLOW, read, store, reader=reader)


@pytest.mark.parametrize(("store", "reader"), [("http", "plain"), ("http", "library"), ("s3", "library")])
@pytest.mark.parametrize("name", list(FLOODS))
def test_a_read_whose_answer_floods_ends_by_the_deadline(name: str, store: str, reader: str) -> None:
    check_bounded({name: FLOODS[name]}, read, store, reader=reader)


@pytest.mark.parametrize(("store", "reader"), WAYS)
def test_a_look_up_ends_by_the_deadline(store: str, reader: str) -> None:
    check_bounded({name: SLOW[name] for name in LOOKED_UP}, info, store, reader=reader)


@pytest.mark.parametrize("store", ["s3", "gs"])
def test_a_listing_ends_by_the_deadline(store: str) -> None:
    check_bounded({name: SLOW[name] for name in LOOKED_UP}, glob, store)


def fails_in_time(case: Case, *, takes_s: float = TOTAL_S, **options: Any) -> StorageError:
    """Return the error with which a call ends by its deadline."""

    async def main() -> tuple[BaseException | None, float]:
        stores = StoreSet({"retry_total_s": TOTAL_S, **options}, asyncio.to_thread)
        try:
            return await outcome(case, stores)
        finally:
            await stores.aclose()

    error, took_s = asyncio.run(main())
    assert isinstance(error, StorageError)
    assert took_s < takes_s + 1.0
    return error


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_a_tls_handshake_without_an_end_ends_by_the_deadline(reader: str) -> None:
    def main(listener: socket.socket) -> None:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/object"
        assert isinstance(fails_in_time(read(url), reader=reader), StoreTimeoutError)

    with leaves_nothing(), socket.create_server(("127.0.0.1", 0)) as listener:
        main(listener)  # the system accepts, and nobody answers


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_connecting_without_an_answer_ends_by_the_deadline(reader: str) -> None:
    with leaves_nothing(), socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
        for _ in range(4):  # the queue of the listener is full: further clients are not answered
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/object"
        assert isinstance(fails_in_time(read(url), reader=reader), StoreTimeoutError)


def test_a_request_for_aws_credentials_ends_by_the_deadline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    trickle = forever(b"HTTP/1.1 200 x\r\ncontent-length: 9999\r\n\r\n", b" ", 0.1)
    with leaves_nothing(), raw_server(trickle) as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/token")
        error = fails_in_time(info("s3://bucket/object"), endpoint_url=server.url)
        assert "/token" in server.requests[0].target
    assert isinstance(error, StoreTimeoutError)


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_a_request_for_a_google_token_ends_by_the_deadline_with_its_thread(reader: str) -> None:
    from google.oauth2.credentials import Credentials

    with leaves_nothing(), raw_server(forever(OPENING, b"x-y: z\r\n", 0.1)) as server:
        token = Credentials(  # type: ignore[no-untyped-call]
            None, refresh_token="r", token_uri=f"{server.url}/token", client_id="i", client_secret="s"
        )
        began = time.monotonic()
        fails_in_time(read("gs://bucket/object"), endpoint_url=server.url, token=token, reader=reader)
        assert time.monotonic() - began < TOTAL_S + 2.5  # asyncio.run waits for its threads
        assert {seen.target for seen in server.requests} == {"/token"}


def test_google_tokens_are_refreshed_over_http() -> None:
    from google.oauth2.credentials import Credentials

    def answer(request: RawRequest) -> None:
        if request.target == "/token":
            request.answer(200, b'{"access_token": "fresh", "expires_in": 3600}', content_type="application/json")
        else:
            request.answer(206, b"12345678", content_range="bytes 0-7/8")

    async def main(server: RawServer) -> bytearray:
        token = Credentials(  # type: ignore[no-untyped-call]
            None, refresh_token="r", token_uri=f"{server.url}/token", client_id="i", client_secret="s"
        )
        stores = StoreSet({"endpoint_url": server.url, "token": token}, asyncio.to_thread)
        buffer = bytearray(8)
        try:
            await stores.read_into(ShardRef("gs://bucket/object", 8), 0, memoryview(buffer))
        finally:
            await stores.aclose()
        return buffer

    with leaves_nothing(), raw_server(answer) as server:
        assert asyncio.run(main(server)) == b"12345678"
        assert server.requests[-1].headers["authorization"] == "Bearer fresh"


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_a_second_request_for_what_is_late_ends_with_the_first(reader: str) -> None:
    quick = True

    def answer(request: RawRequest) -> None:
        if quick:
            request.answer(206, b"x" * 1000, content_range="bytes 0-999/1000")
        else:
            request.send_forever(b"HTTP/1.1 100 Continue\r\n\r\n", 0.05)

    async def main(url: str) -> tuple[BaseException | None, float, int]:
        nonlocal quick
        stores = StoreSet({"retry_total_s": TOTAL_S, "reader": reader}, asyncio.to_thread)
        try:
            for _ in range(100):
                await stores.read_into(ShardRef(url, 1000), 0, memoryview(bytearray(1000)))
            quick = False
            late = await outcome(
                lambda _: stores.read_into(ShardRef(url, 1000), 0, memoryview(bytearray(1000))), stores
            )
            return *late, stores.counters.hedges
        finally:
            await stores.aclose()

    with leaves_nothing(), raw_server(answer) as server:
        error, took_s, hedges = asyncio.run(main(f"{server.url}/object"))
    assert isinstance(error, StoreTimeoutError)
    assert took_s < TOTAL_S + 1.0
    assert hedges >= 1


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_a_read_through_the_shard_cache_ends_by_the_deadline(reader: str, tmp_path: Path) -> None:
    async def main(url: str) -> tuple[BaseException | None, float]:
        options = {"retry_total_s": TOTAL_S, "reader": reader}
        stores = StoreSet(options, asyncio.to_thread, ShardCache(tmp_path, trust=True))
        try:
            return await outcome(read(url), stores)
        finally:
            await stores.aclose()

    with leaves_nothing(), raw_server(SLOW["a body byte by byte"]) as server:
        error, took_s = asyncio.run(main(f"{server.url}/object"))
    assert isinstance(error, StoreTimeoutError)
    assert took_s < TOTAL_S + 1.0


def test_parallel_parts_of_an_object_end_by_the_deadline() -> None:
    async def parts(stores: StoreSet, url: str) -> None:
        shard = ShardRef(url, NBYTES, '"1"')
        await read_parts(stores, shard, parts_of(shard, NBYTES, NBYTES // 16), memoryview(bytearray(NBYTES)))

    with leaves_nothing(), raw_server(SLOW["a header every now and then"]) as server:
        error = fails_in_time(lambda stores: parts(stores, f"{server.url}/object"))
    assert isinstance(error, StoreTimeoutError)


class Stuck(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A blocking file system whose calls return when the test says so."""

    protocol = "stuck"
    release = threading.Event()

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self.release.wait(30)
        return {"name": path, "size": 1, "type": "file"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        self.release.wait(30)
        return b"x"


@pytest.mark.parametrize("case", [read, info])
def test_a_blocking_file_system_that_never_returns_is_left_behind_at_the_deadline(case: Callable[[str], Case]) -> None:
    async def main() -> tuple[BaseException | None, float]:
        stores = StoreSet({"retry_total_s": TOTAL_S}, asyncio.to_thread)
        try:
            return await outcome(case("stuck://object"), stores)
        finally:
            Stuck.release.set()
            await stores.aclose()

    fsspec.register_implementation("stuck", Stuck, clobber=True)
    Stuck.release.clear()
    with leaves_nothing():
        error, took_s = asyncio.run(main())
    assert isinstance(error, StoreTimeoutError)
    assert took_s < TOTAL_S + 1.0


@pytest.mark.parametrize("store", ["s3", "gs"])
@pytest.mark.parametrize("kind", ["the same page", "other keys", "no keys"])
def test_a_listing_without_an_end_ends_by_the_deadline(kind: str, store: str) -> None:
    pages = itertools.count()

    def answer(request: RawRequest) -> None:
        page = next(pages)
        names = {"the same page": ["a"], "other keys": [f"a{page:09}"], "no keys": []}[kind]
        if store == "s3":
            keys = "".join(f"<Contents><Key>{name}</Key><Size>1</Size></Contents>" for name in names)
            truncated = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{page}</NextContinuationToken>"
            body = f"<ListBucketResult>{truncated}{keys}</ListBucketResult>"
        else:
            body = json.dumps({"nextPageToken": str(page), "items": [{"name": name, "size": "1"} for name in names]})
        request.answer(200, body.encode())

    with leaves_nothing(), raw_server(answer) as server:
        error = fails_in_time(glob(f"{store}://bucket"), **options_for(store, server))
    assert f"{store}://bucket/*" in str(error)


def test_requests_that_wait_for_the_caps_of_the_user_are_not_late() -> None:
    async def main(url: str) -> int:
        options = {"retry_total_s": TOTAL_S, "max_requests_per_second": 2.0}
        stores = StoreSet(options, asyncio.to_thread)
        try:
            shard = ShardRef(url, 8)
            await asyncio.gather(*(stores.read_into(shard, 0, memoryview(bytearray(8))) for _ in range(4)))
            return stores.counters.failures
        finally:
            await stores.aclose()

    answer: Answer = lambda request: request.answer(206, b"12345678", content_range="bytes 0-7/8")  # noqa: E731
    with leaves_nothing(), raw_server(answer) as server:
        began = time.monotonic()
        assert asyncio.run(main(f"{server.url}/object")) == 0
        assert time.monotonic() - began > 2 * TOTAL_S


def test_without_time_to_retry_there_is_one_attempt_which_the_deadline_does_not_end() -> None:
    def answer(request: RawRequest) -> None:
        time.sleep(0.2)
        request.answer(503)

    with leaves_nothing(), raw_server(answer) as server:
        error = fails_in_time(read(f"{server.url}/object"), retry_total_s=0)
        assert len(server.requests) == 1
    assert isinstance(error, StoreBusyError)


def test_an_error_at_the_deadline_names_the_attempts_that_failed_before() -> None:
    def answer(request: RawRequest) -> None:
        if len(server.requests) > 2:
            request.stay_silent()
        request.answer(503)

    with leaves_nothing(), raw_server(answer) as server:
        error = fails_in_time(read(f"{server.url}/object"), takes_s=2.0, retry_total_s=2.0)
    assert "within retry_total_s=2 seconds (2 attempts failed)" in str(error)
    assert isinstance(error.__cause__, StoreBusyError)


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize(
    "name", ["an interim answer every now and then", "a header byte by byte", "a body byte by byte"]
)
def test_a_loader_raises_the_error_in_time_and_leaves_nothing(name: str, reader: str) -> None:
    def answer(request: RawRequest) -> None:
        if request.method == "HEAD":
            request.answer(200, b"x" * NBYTES, etag='"1"')
        else:
            SLOW[name](request)

    with leaves_nothing(), raw_server(answer) as server:
        urls = [f"{server.url}/object-{number}" for number in range(4)]
        options = {"retry_total_s": TOTAL_S, "reader": reader}
        loader = Dataset.from_tfrecord(urls, storage_options=options, cycle_length=4).open()
        began = time.monotonic()  # to open loads modules first
        with loader, pytest.raises(StoreTimeoutError, match="object-"):
            next(iter(loader))
        assert time.monotonic() - began < TOTAL_S + 2.0  # with closing


def test_a_loader_that_is_debugged_raises_it_in_time() -> None:
    with leaves_nothing(), raw_server(SLOW["a header byte by byte"]) as server:
        dataset = Dataset.from_tfrecord(f"{server.url}/object", storage_options={"retry_total_s": TOTAL_S})
        began = time.monotonic()
        with pytest.raises(StoreTimeoutError), dataset.debug() as loader:
            next(iter(loader))
        assert time.monotonic() - began < TOTAL_S + 2.0
