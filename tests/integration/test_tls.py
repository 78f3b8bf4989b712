"""Over TLS: who a server is gets verified on either path, sessions are taken up again, and faults cost what they do."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal

import pytest
from certificates import Certificates, make_certificates
from leaks import leaves_nothing

from aiostream_data.errors import StoreUnreachableError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.conformance import CONTENT, read_range
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import At, Fault, Rule
from aiostream_data.testing.object_api.dialect import DialectName

QUICK = {"retry_connect_total_s": 5.0, "connect_timeout": 5.0, "read_timeout": 2.0}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def trusting(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine know the authority, as an operator would."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates.authority))


@pytest.fixture
def server(certificates: Certificates) -> Iterator[FaultServer]:
    with leaves_nothing(), fault_server("http", certificate=certificates.good) as running:
        yield running


def use(server: FaultServer, case: Callable[[StoreSet], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        stores = StoreSet({**server.storage_options, **QUICK, **options}, asyncio.to_thread)
        try:
            return await asyncio.wait_for(case(stores), 30)
        finally:
            await stores.aclose()

    return asyncio.run(main())


def content(server: FaultServer, url: str, **options: Any) -> bytes:
    result: bytes = use(server, lambda stores: read_range(stores, ShardRef(url), 100, 60_000), **options)
    return result


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("where", ["thread", "process"])
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_objects_are_read_from_a_server_that_is_who_it_says(
    certificates: Certificates, dialect: DialectName, where: Literal["thread", "process"], reader: str
) -> None:
    with leaves_nothing(), fault_server(dialect, where=where, certificate=certificates.good) as server:
        url = server.put("bucket/key", CONTENT)
        assert server.endpoint_url.startswith("https://127.0.0.1:")
        assert content(server, url, reader=reader) == CONTENT[100:60_000]
        assert server.counters().requests == {"get": 1}


def test_the_library_reads_over_tls_where_the_options_name_the_authority(certificates: Certificates) -> None:
    with leaves_nothing(), fault_server("s3", certificate=certificates.good) as server:
        url = server.put("bucket/key", CONTENT)
        client = {"region_name": "us-east-1", "verify": str(certificates.authority)}
        for reader in ("plain", "library"):
            assert content(server, url, reader=reader, client_kwargs=client) == CONTENT[100:60_000]


def _refused(server: FaultServer, url: str, **options: Any) -> StoreUnreachableError:
    began = time.monotonic()
    with pytest.raises(StoreUnreachableError, match="certificate") as caught:
        content(server, url, **options)
    assert time.monotonic() - began < 10.0
    assert caught.value.is_final
    assert not hasattr(caught.value, "__notes__")  # it was not tried again
    assert str(caught.value).startswith(f"{url}: ")
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize(("which", "told"), [("misnamed", "mismatch"), ("expired", "expired")])
def test_a_certificate_that_does_not_hold_is_refused(
    certificates: Certificates, which: str, told: str, reader: str
) -> None:
    with leaves_nothing(), fault_server("s3", certificate=getattr(certificates, which)) as server:
        url = server.put("bucket/key", CONTENT)
        error = _refused(server, url, reader=reader)
        assert told in str(error)
        assert server.counters().all_requests == 0


@pytest.mark.parametrize("reader", ["plain", "library"])
@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
def test_an_unknown_authority_is_refused(certificates: Certificates, dialect: DialectName, reader: str) -> None:
    with leaves_nothing(), fault_server(dialect, certificate=certificates.good) as server:
        error = _refused(server, server.put("bucket/key", CONTENT), reader=reader)
        assert "SSL_CERT_FILE" in str(error)
        assert server.counters().all_requests == 0


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_a_server_that_speaks_no_tls_is_named_for_it(reader: str) -> None:
    with leaves_nothing(), socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_in_plain_text() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(4096)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

        answering = threading.Thread(target=answer_in_plain_text)
        answering.start()
        server = FaultServer("http", f"https://127.0.0.1:{listener.getsockname()[1]}", lambda *_: (200, b""))
        with pytest.raises(StoreUnreachableError, match="supports TLS"):
            content(server, server.url("key"), reader=reader, retry_connect_total_s=0.3)
        listener.shutdown(socket.SHUT_RDWR)
        answering.join()


@pytest.mark.usefixtures("trusting")
def test_a_session_is_taken_up_by_every_connection_after_the_first(server: FaultServer) -> None:
    url = server.put("key", CONTENT)

    async def case(stores: StoreSet) -> None:
        for start in range(5):
            assert await read_range(stores, ShardRef(url), start, start + 100) == CONTENT[start : start + 100]
            server.drop_connections()

    use(server, case, reader="plain", retry_connect_total_s=10.0)
    counters = server.counters()
    assert counters.handshakes >= 5
    assert counters.resumed_handshakes == counters.handshakes - 1


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize(
    "fault", [*(Fault(reset_at=at) for at in ("head", "middle")), *(Fault(truncate_at=at) for at in ("first", "last"))]
)
def test_a_body_that_breaks_off_goes_on_behind_what_came(server: FaultServer, fault: Fault) -> None:
    url = server.put("key", CONTENT)
    server.set_rules(Rule(fault, kind="get", times=1))
    assert content(server, url, reader="plain") == CONTENT[100:60_000]
    assert [seen.status for seen in server.log()] == [206, 206]


@pytest.mark.usefixtures("trusting")
def test_a_stall_within_tls_costs_its_time_out(server: FaultServer) -> None:
    url = server.put("key", CONTENT)
    at: At = "middle"
    server.set_rules(Rule(Fault(stall_at=at), kind="get", times=1))
    assert content(server, url, reader="plain", read_timeout=0.5, retry_connect_total_s=10.0) == CONTENT[100:60_000]
