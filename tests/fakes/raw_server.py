"""A server on this machine that answers every request by a function of the test, byte by byte if need be."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias


class RawRequest:
    """One request, and the connection on which it came.

    Attributes:
        method, target: Of the request line.
        headers: By name in lower case.
    """

    def __init__(self, head: str, connection: socket.socket, ending: threading.Event) -> None:
        request, *lines = head.split("\r\n")
        self.method, self.target, _ = request.split(" ")
        pairs = (line.partition(":") for line in lines if line)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}
        self._connection = connection
        self._ending = ending

    def send(self, data: bytes) -> None:
        """Send all of ``data``; raises OSError once the client has gone."""
        self._connection.sendall(data)

    def send_forever(self, piece: bytes, pause_s: float = 0.0) -> None:
        """Send the same again and again, until the client or the server ends."""
        while not self._ending.wait(pause_s):
            self.send(piece)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a whole answer."""
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} x\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode()
        self.send(head if self.method == "HEAD" else head + body)

    def stay_silent(self) -> None:
        """Keep the connection open and send nothing, until the server ends."""
        self._ending.wait()


Answer: TypeAlias = Callable[[RawRequest], None]


class RawServer:
    """A running server.

    Attributes:
        url: Without a slash at its end.
        requests: All that came, in order.
    """

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[RawRequest] = []
        self._answer = answer
        self._tls = tls
        self._ending = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="raw server")]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self) -> None:
        self._threads[0].start()

    def close(self) -> None:
        self._ending.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), name="raw connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(plain, server_side=True)
            while (head := _head_of(connection)) is not None:
                self.requests.append(RawRequest(head, connection, self._ending))
                self._answer(self.requests[-1])
        except OSError:
            return  # the client has gone
        finally:
            connection.close()
            plain.close()


def _head_of(connection: socket.socket) -> str | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1 << 16)
        if not piece:
            return None
        data += piece
    return data.partition(b"\r\n\r\n")[0].decode("latin-1")


@contextmanager
def raw_server(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    """Run a server for the block."""
    server = RawServer(answer, tls)
    server.start()
    try:
        yield server
    finally:
        server.close()
