"""``RealServer`` repeats an idempotent request when the server disconnects, and raises when it keeps doing so."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import RemoteDisconnected

import pytest

from aiostream_data.testing.real_servers import RealServer

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def server_that_disconnects(times: int) -> Iterator[tuple[str, list[int]]]:
    """Serve on loopback: close the first ``times`` connections after the request, and answer the others."""
    accepted: list[int] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                if not connection.recv(65_536):
                    return
                accepted.append(1)
                if len(accepted) > times:
                    connection.sendall(ANSWER)

    thread = threading.Thread(target=serve)
    thread.start()
    port = listener.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", accepted
    finally:
        socket.create_connection(("127.0.0.1", port)).close()  # an empty request ends the thread
        thread.join()
        listener.close()


def test_a_put_survives_two_disconnections() -> None:
    with server_that_disconnects(2) as (url, accepted):
        RealServer(url).create_bucket("bucket")
    assert len(accepted) == 3


def test_a_put_raises_after_three_disconnections() -> None:
    with server_that_disconnects(9) as (url, accepted), pytest.raises((RemoteDisconnected, ConnectionError)):
        RealServer(url).create_bucket("bucket")
    assert len(accepted) == 3
