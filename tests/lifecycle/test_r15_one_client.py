"""R15: however many requests, one client, no more connections than allowed, and all of them given back.

100,000 requests with ``ASD_FULL_SIZE=1``, 8,000 otherwise; against a server on this machine that does nothing else.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset

aiohttp = pytest.importorskip("aiohttp")

REQUESTS = 100_000 if os.environ.get("ASD_FULL_SIZE") else 4_000
CONNECTIONS = 16
BODY = b"a record"


@dataclass
class Served:
    """What a running server has seen."""

    url: str = ""
    requests: int = 0
    connections: int = 0
    open_now: int = 0
    most_open: int = 0


class _Answering(asyncio.Protocol):
    """One connection: every request is for the same few bytes."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        served = self._served
        served.connections += 1
        served.open_now += 1
        served.most_open = max(served.most_open, served.open_now)

    def connection_lost(self, exc: Exception | None) -> None:
        self._served.open_now -= 1

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for request in requests:
            self._served.requests += 1
            told = f'Content-Length: {len(BODY)}\r\nETag: "1"\r\n'
            if request.startswith(b"HEAD"):
                self._transport.write(f"HTTP/1.1 200 OK\r\n{told}\r\n".encode())
            else:
                part = f"Content-Range: bytes 0-{len(BODY) - 1}/{len(BODY)}\r\n"
                self._transport.write(f"HTTP/1.1 206 Partial Content\r\n{told}{part}\r\n".encode() + BODY)


@contextmanager
def _server() -> Iterator[Served]:
    served, loop = Served(), asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: _Answering(served), "127.0.0.1", 0))
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()


@pytest.mark.parametrize("reader", ["plain", "library"])
def test_r15_many_requests_take_one_client_and_give_every_connection_back(
    reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connectors = []
    begin = aiohttp.ClientSession.__init__

    def noting(self: object, *args: object, **options: object) -> None:
        begin(self, *args, **options)
        connectors.append(self.connector)  # type: ignore[attr-defined]

    monkeypatch.setattr(aiohttp.ClientSession, "__init__", noting)
    with _server() as served, leaves_nothing():
        urls = [f"{served.url}/{number}" for number in range(REQUESTS // 2)]
        # Without second requests: the connection of one that came too late is closed, which the server sees later.
        options = {"max_connections": CONNECTIONS, "reader": reader, "hedge": False}
        dataset = Dataset.from_files(urls, read_ahead=64, storage_options=options)
        with dataset.open() as loader:
            rows = sum(1 for _ in loader)
        assert rows == REQUESTS // 2
        assert served.requests >= REQUESTS  # a HEAD and a GET for each object
        assert served.most_open <= CONNECTIONS
        assert served.connections <= 2 * CONNECTIONS  # used again and again
        assert len(connectors) == (reader == "library")
        assert all(len(connector._acquired) == 0 for connector in connectors)
