"""Blocking sockets in threads, receiving into reused memory: what Python can do at most without an event loop."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from benchmarks.compare.cloud_passes import ReusedMemory, in_threads
from benchmarks.pipeline.cloud_work import Cell, Client, Part, Place

IMPORTS = ("socket", "ssl")


def open_client(place: Place, cell: Cell) -> Client:
    """Open it: a connection for each thread."""
    parts = urlsplit(place.url)
    address = (parts.hostname or "", parts.port or 0)
    context = ssl.create_default_context(cafile=place.authority) if place.authority else None

    memory, lanes = ReusedMemory(cell), count()

    def make_read() -> Callable[[Part], Any]:
        connection = socket.create_connection(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=address[0])
        buffer = memory.of(next(lanes))

        def read(part: Part) -> memoryview:
            connection.sendall(
                f"GET /bench/{part.key} HTTP/1.1\r\nhost: bench\r\n"
                f"range: bytes={part.start}-{part.start + part.nbytes - 1}\r\n\r\n".encode()
            )
            _receive(connection, buffer)
            return buffer

        return read

    return in_threads(make_read, cell)


def _receive(connection: socket.socket, view: memoryview) -> None:
    head = bytearray()
    while (end := head.find(b"\r\n\r\n")) < 0:
        head += connection.recv(4_096) or _fail()
    rest = head[end + 4 :]
    if not head.startswith(b"HTTP/1.1 206"):
        _fail()
    done = len(rest)
    view[:done] = rest
    while done < len(view):
        done += connection.recv_into(view[done:]) or _fail()


def _fail() -> Any:
    raise ConnectionError("the answer was not the one that was asked for")
