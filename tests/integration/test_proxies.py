"""Proxies of the environment are used, and named when they fail: without their password, in one sentence, in time."""

from __future__ import annotations

import asyncio
import pickle
import socket
import time
import traceback
from typing import Any

import pytest
from certificates import make_certificates
from leaks import leaves_nothing
from proxy import proxy

from aiostream_data.errors import AccessDeniedError, StorageError, StoreUnreachableError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import CONTENT, read_range
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.object_api.dialect import DialectName

PASSWORD = "hunter2hunter2"
DIALECTS = pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def content(server: FaultServer, url: str, **options: Any) -> bytes:
    async def main() -> bytes:
        quick = {"retry_connect_total_s": 0.2, "retry_attempts": 2}
        stores = StoreSet({**server.storage_options, **quick, **options}, asyncio.to_thread)
        try:
            return await asyncio.wait_for(read_range(stores, ShardRef(url), 5, 500), 30)
        finally:
            await stores.aclose()

    return asyncio.run(main())


@DIALECTS
def test_requests_go_by_the_proxy_of_the_environment(dialect: DialectName, monkeypatch: pytest.MonkeyPatch) -> None:
    with leaves_nothing(), proxy(f"me:{PASSWORD}") as between, fault_server(dialect) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:{PASSWORD}@{between.address}")
        url = server.put("bucket/key", CONTENT)
        assert content(server, url) == CONTENT[5:500]
        assert any(line.startswith(f"GET {server.endpoint_url}/") for line in between.seen)


@DIALECTS
@pytest.mark.parametrize("way", ["no_proxy", "plain"])
def test_what_needs_no_proxy_goes_without(dialect: DialectName, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with leaves_nothing(), proxy() as between, fault_server(dialect) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://{between.address}")
        if way == "no_proxy":
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        url = server.put("bucket/key", CONTENT)
        assert content(server, url, **({"reader": "plain"} if way == "plain" else {})) == CONTENT[5:500]
        assert between.seen == []


def refused(server: FaultServer, url: str, kind: type[StorageError], caplog: pytest.LogCaptureFixture) -> str:
    """Return what the error says, after looking for the password wherever it could be."""
    began = time.monotonic()
    with caplog.at_level("DEBUG"), pytest.raises(kind) as caught:
        content(server, url)
    assert time.monotonic() - began < 15.0
    error = caught.value
    told = "".join([*traceback.format_exception(error), repr(error), repr(pickle.dumps(error)), caplog.text])
    assert PASSWORD not in told
    assert str(error).startswith(f"{url}: ")
    assert "\n" not in str(error)
    return str(error)


@DIALECTS
def test_a_proxy_that_is_not_there_is_named(
    dialect: DialectName, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with leaves_nothing(), fault_server(dialect) as server, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        monkeypatch.setenv("HTTP_PROXY", f"http://me:{PASSWORD}@{address}")
        told = refused(server, server.put("bucket/key", CONTENT), StoreUnreachableError, caplog)
        assert f"the proxy {address} cannot be reached: the connection was refused" in told
        assert server.counters().all_requests == 0


@DIALECTS
def test_a_proxy_that_wants_another_password_is_named(
    dialect: DialectName, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with leaves_nothing(), proxy("me:another") as between, fault_server(dialect) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:{PASSWORD}@{between.address}")
        told = refused(server, server.put("bucket/key", CONTENT), AccessDeniedError, caplog)
        assert f"the proxy {between.address} refused the request (HTTP 407)" in told
        assert server.counters().all_requests == 0


@DIALECTS
def test_a_tunnel_that_is_refused_names_the_proxy(
    dialect: DialectName, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    good = make_certificates(tmp_path).good
    with leaves_nothing(), proxy("me:another") as between, fault_server(dialect, certificate=good) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:{PASSWORD}@{between.address}")
        told = refused(server, server.put("bucket/key", CONTENT), AccessDeniedError, caplog)
        assert f"the proxy {between.address} refused the request (HTTP 407)" in told
        assert all(line.startswith("CONNECT ") for line in between.seen)
        assert server.counters().handshakes == 0


def test_a_tunnel_is_made_to_a_server_that_speaks_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    certificates = make_certificates(tmp_path)
    with leaves_nothing(), proxy() as between, fault_server("s3", certificate=certificates.good) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{between.address}")
        url = server.put("bucket/key", CONTENT)
        client = {"region_name": "us-east-1", "verify": str(certificates.authority)}
        assert content(server, url, client_kwargs=client) == CONTENT[5:500]
        assert between.seen[0].startswith("CONNECT 127.0.0.1:")
