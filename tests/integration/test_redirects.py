"""A redirect to another origin gets no secret, and none leads from HTTPS to HTTP."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import aiohttp
import pytest
import yarl
from certificates import Certificates, make_certificates
from leaks import leaves_nothing
from raw_server import RawRequest, RawServer, raw_server

from aiostream_data.errors import RedirectRefusedError, StorageError, WrongAnswerError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.redirects import check_redirect
from aiostream_data.storage.stores import StoreSet

CONTENT = b"12345678"
SECRETS = {
    "x-api-key": "hunter2",
    "cookie": "session=hunter2",
    "authorization": "Bearer hunter2",
    "user-agent": "hunter2",
}
ANONYMOUS: dict[str, dict[str, Any]] = {"http": {}, "s3": {"anon": True}, "gs": {"token": "anon"}}
LIBRARY_HEADERS = {"host", "range", "if-match", "accept", "accept-encoding", "user-agent", "connection"}


def serve(request: RawRequest) -> None:
    if request.method == "HEAD":
        request.answer(200, CONTENT)
    else:
        request.answer(206, CONTENT, content_range="bytes 0-7/8", etag='"1"')


def read(url: str, **options: Any) -> bytes:
    async def main() -> bytes:
        stores = StoreSet({"retry_total_s": 5.0, **options}, asyncio.to_thread)
        buffer = bytearray(len(CONTENT))
        try:
            await stores.read_into(ShardRef(url, len(CONTENT), '"1"'), 0, memoryview(buffer))
        finally:
            await stores.aclose()
        return bytes(buffer)

    return asyncio.run(main())


@pytest.fixture
def other() -> Iterator[RawServer]:
    """A server of another origin: another port."""
    with raw_server(serve) as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_of(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.good)
    return context


def redirecting_to(url: str, status: int = 302) -> Any:
    return raw_server(lambda request: request.answer(status, location=url))


def assert_no_secret(request: RawRequest) -> None:
    assert set(request.headers) <= LIBRARY_HEADERS
    assert "hunter2" not in str(request.headers)
    assert request.headers["range"] == "bytes=0-7"
    assert request.headers["if-match"] == '"1"'


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("reader", ["plain", "library"])
def test_headers_of_the_user_do_not_go_to_another_origin(reader: str, status: int, other: RawServer) -> None:
    with leaves_nothing(), redirecting_to(f"{other.url}/there", status) as server:
        assert read(f"{server.url}/object", reader=reader, headers=SECRETS) == CONTENT
        assert all(server.requests[-1].headers[name] == value for name, value in SECRETS.items())
    assert_no_secret(other.requests[0])


def basic_auth() -> aiohttp.BasicAuth:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return aiohttp.BasicAuth("me", "hunter2")


@pytest.mark.parametrize(
    "options",
    [
        {"auth": ("me", "hunter2")},
        {"client_kwargs": {"auth": basic_auth()}},
        {"client_kwargs": {"cookies": {"session": "hunter2"}}},
        {"client_kwargs": {"headers": {"X-Api-Key": "hunter2"}}},
    ],
)
def test_passwords_and_cookies_do_not_go_to_another_origin(options: dict[str, Any], other: RawServer) -> None:
    secret = b64encode(b"me:hunter2").decode()
    with leaves_nothing(), redirecting_to(f"{other.url}/there") as server:
        assert read(f"{server.url}/object", **options) == CONTENT
        sent = str(server.requests[-1].headers)
    assert "hunter2" in sent or secret in sent
    assert_no_secret(other.requests[0])
    assert secret not in str(other.requests[0].headers)


def test_a_password_in_the_url_does_not_go_to_another_origin(other: RawServer) -> None:
    with leaves_nothing(), redirecting_to(f"{other.url}/there") as server:
        assert read(f"{server.url}/object".replace("//", "//me:hunter2@")) == CONTENT
        assert "authorization" in server.requests[-1].headers
    assert_no_secret(other.requests[0])


def test_headers_go_along_within_an_origin() -> None:
    def answer(request: RawRequest) -> None:
        if request.target == "/object":
            request.answer(302, location="/there")
        else:
            serve(request)

    with leaves_nothing(), raw_server(answer) as server:
        assert read(f"{server.url}/object", headers=SECRETS) == CONTENT
        assert server.requests[-1].target == "/there"
        assert server.requests[-1].headers["x-api-key"] == "hunter2"


def test_headers_that_were_dropped_do_not_come_back_with_the_first_origin() -> None:
    with leaves_nothing(), ExitStack() as stack:

        def answer(request: RawRequest) -> None:
            if request.target == "/object":
                request.answer(302, location=f"{away.url}/away")
            else:
                serve(request)

        server = stack.enter_context(raw_server(answer))
        away = stack.enter_context(redirecting_to(f"{server.url}/back"))
        assert read(f"{server.url}/object", headers=SECRETS) == CONTENT
        assert server.requests[-1].target == "/back"
        assert_no_secret(server.requests[-1])


@pytest.mark.parametrize("store", ["s3", "gs"])
def test_signatures_and_keys_of_encryption_do_not_go_to_another_origin(store: str, other: RawServer) -> None:
    from google.oauth2.credentials import Credentials

    s3_options: dict[str, Any] = {
        "key": "AKIAEXAMPLE",
        "secret": "s",
        "token": "hunter2",
        "s3_additional_kwargs": {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "hunter2" * 4},
    }
    gs_options: dict[str, Any] = {"token": Credentials("hunter2")}  # type: ignore[no-untyped-call]
    with leaves_nothing(), redirecting_to(f"{other.url}/there", 307) as server:
        options = {"s3": s3_options, "gs": gs_options}[store]
        with suppress(StorageError):  # the other server does not answer as a store does
            read(f"{store}://bucket/object", endpoint_url=server.url, **options)
        assert any("hunter2" in str(seen.headers) for seen in server.requests)
    for seen in other.requests:
        assert set(seen.headers) <= LIBRARY_HEADERS
        assert "hunter2" not in str(seen.headers)
    assert other.requests


@pytest.mark.parametrize("store", ["http", "s3", "gs"])
@pytest.mark.parametrize("reader", ["plain", "library"])
def test_a_redirect_from_https_to_http_is_refused(
    reader: str, store: str, other: RawServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates.authority))
    with (
        leaves_nothing(),
        raw_server(lambda request: request.answer(302, location=f"{other.url}/there"), tls_of(certificates)) as server,
    ):
        options: dict[str, Any] = {} if store == "http" else {"endpoint_url": server.url}
        options |= ANONYMOUS[store]
        url = f"{server.url}/object" if store == "http" else f"{store}://bucket/object"
        with pytest.raises(RedirectRefusedError, match=r"from HTTPS to http://127\.0\.0\.1"):
            read(url, reader=reader, **options)
        assert len(server.requests) <= 2  # it is not retried
    assert other.requests == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "javascript:x", "http://[x/"])
def test_a_redirect_to_what_is_no_http_url_is_refused(location: str) -> None:
    with leaves_nothing(), redirecting_to(location) as server, pytest.raises(RedirectRefusedError):
        read(f"{server.url}/object")


def test_a_redirect_in_a_circle_is_a_wrong_answer() -> None:
    with leaves_nothing(), redirecting_to("/object") as server, pytest.raises(WrongAnswerError, match="too many"):
        read(f"{server.url}/object", retry_attempts=2)


def test_looking_up_sends_no_secret_to_another_origin_either(other: RawServer) -> None:
    async def main(url: str) -> None:
        stores = StoreSet({"headers": SECRETS}, asyncio.to_thread)
        try:
            await stores.info(url)
        finally:
            await stores.aclose()

    with leaves_nothing(), redirecting_to(f"{other.url}/there") as server:
        asyncio.run(main(f"{server.url}/object"))
    assert not any("hunter2" in str(seen.headers) for seen in other.requests)
    assert other.requests


@pytest.mark.parametrize(
    ("here", "location", "is_other"),
    [
        ("http://h/a", "/b", False),
        ("http://h/a", "b?c=d", False),
        ("http://h/a", "http://h:80/b", False),
        ("http://h/a", "http://H/b", False),
        ("http://h/a", "//h/b", False),
        ("http://h/a", "http://h:8080/b", True),
        ("http://h/a", "http://g/b", True),
        ("http://h/a", "//g/b", True),
        ("http://h/a", "https://h/b", True),
        ("https://h/a", "https://h:443/b", False),
        ("https://h/a", "//g/b", True),
        ("https://h/a", "https://u:p@h/b", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(here: str, location: str, is_other: bool) -> None:
    assert check_redirect(yarl.URL(here), location) is is_other


@pytest.mark.parametrize("location", ["http://h/b", "HTTP://h/b", "http://h:443/b", "http:/b"])
def test_no_way_of_writing_it_leads_from_https_to_http(location: str) -> None:
    with pytest.raises(RedirectRefusedError):
        check_redirect(yarl.URL("https://h/a"), location)
